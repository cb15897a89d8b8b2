# Checks the rows that the recipe stored, ids of many rows and in JSON, and the schema dump, loaded into an empty database.

require_relative "recipe"

def check(holds, what)
  raise what unless holds
end

check Order.columns_hash["id"].default_function == "snowflake_next()", "the default is the database's"
check Order.columns_hash["id"].sql_type == "bigint" && Parcel.columns_hash["order_id"].sql_type == "bigint", "references fit"

tea = Order.first
check tea.item == "tea" && tea.id.is_a?(Integer) && tea.id > 2**53, "the first row by id is the one that was created first"
check Order.last.item == "milk", "the last row is the newest"
check Order.find(tea.id.to_s) == tea, "an id from a URL finds its row"
check tea.parcels.count == 2 && tea.parcels.all? { |parcel| parcel.order_id == tea.id }, "parcels refer to their order"
begin
  Parcel.insert!({ order_id: tea.id + 1 })
  check false, "the foreign key is there"
rescue ActiveRecord::InvalidForeignKey
end

items = Array.new(1000) { |n| { item: "item #{n}" } }
added = Order.insert_all!(items)
check added.rows.length == 1000 && added.columns == ["id"], "insert_all returns ids unless told otherwise"
check Order.find(added.rows.flatten).map(&:item) == items.map { |row| row[:item] }, "in the order of the rows"

# Ids before the insert.
n = 3
connection = ActiveRecord::Base.connection
order_id, *parcel_ids = connection.select_values("SELECT snowflake_batch(#{n})")
check parcel_ids.length == 2 && order_id.is_a?(Integer), "ids are integers"
Order.insert!({ id: order_id, item: "sugar" })
Parcel.insert_all!(parcel_ids.map { |id| { id: id, order_id: order_id } })
check Order.find(order_id).parcel_ids.sort == parcel_ids, "children know their parent before it is stored"

# JavaScript would read a different number from JSON.
json = -> { ActiveSupport::JSON.decode(tea.to_json) }
check json.call == { "id" => tea.id, "item" => "tea" }, "an id is a number in JSON"
class Order
  def as_json(*)
    super.merge("id" => id.to_s)
  end
end
check json.call == { "id" => tea.id.to_s, "item" => "tea" }, "unless the model says otherwise"

# Does what "rails db:schema:dump", "db:create" and "db:schema:load" do.
tasks = ActiveRecord::Tasks::DatabaseTasks
tasks.db_dir = Dir.pwd
database = ActiveRecord::Base.connection_db_config
tasks.dump_schema(database)
schema = File.read("schema.rb")
check schema.include?('enable_extension "snowflake_id"'), schema
%w[orders parcels].each do |table|
  check schema.include?(%(create_table "#{table}", id: :bigint, default: -> { "snowflake_next()" }, force: :cascade)), schema
end

configuration = database.configuration_hash.merge(database: "loaded")
empty = ActiveRecord::DatabaseConfigurations::HashConfig.new("test", "primary", configuration)
tasks.create(empty)
ActiveRecord::Base.establish_connection(empty)
check ActiveRecord::Base.connection.tables.empty?, "the new database is empty"
tasks.load_schema(empty)
[Order, Parcel].each(&:reset_column_information)
check Order.create!(item: "sugar", parcels: [Parcel.new]).id > added.rows.flatten.last, "ids are drawn there, too"
tasks.dump_schema(empty)
check File.read("schema.rb") == schema, "and a dump of it is the same"
