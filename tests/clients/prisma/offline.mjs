// Lets Prisma's command line generate a client without the engine for migrations, which it would download and does not use.
process.env.PRISMA_SCHEMA_ENGINE_BINARY = process.execPath;
process.env.CHECKPOINT_DISABLE = '1';
