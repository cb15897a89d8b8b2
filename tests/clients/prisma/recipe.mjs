import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/index.js';

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

const tea = await prisma.order.create({ data: { item: 'tea', lines: { create: [{ kind: 'green' }, { kind: 'black' }] } } });
const others = await prisma.order.createManyAndReturn({ data: [{ item: 'coffee' }, { item: 'cocoa' }] });

// JSON has no BigInt.
console.log(JSON.stringify([tea, ...others], (_, value) => (typeof value === 'bigint' ? String(value) : value)));

await prisma.$disconnect();
