import { DataTypes, Sequelize, literal } from 'sequelize';

const sequelize = new Sequelize(process.env.DATABASE_URL, { logging: false });

const id = () => ({ type: DataTypes.BIGINT, primaryKey: true, defaultValue: literal('snowflake_next()') });
const Order = sequelize.define('order', { id: id(), item: DataTypes.TEXT }, { timestamps: false });
const Line = sequelize.define('line', { id: id() }, { timestamps: false });
Order.hasMany(Line);
Line.belongsTo(Order);
await sequelize.sync();

const tea = await Order.create({ item: 'tea', lines: [{}, {}] }, { include: Line });
const others = await Order.bulkCreate([{ item: 'coffee' }, { item: 'cocoa' }]);
console.log(JSON.stringify([tea, ...others].map(({ id, item }) => ({ id, item }))));

await sequelize.close();
