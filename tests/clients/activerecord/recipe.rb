require "active_record"

ActiveRecord::Base.establish_connection(ENV["DATABASE_URL"])

class CreateOrders < ActiveRecord::Migration[6.1]
  def change
    enable_extension "snowflake_id"
    create_table :orders, id: :bigint, default: -> { "snowflake_next()" } do |t|
      t.text :item
    end
    create_table :parcels, id: :bigint, default: -> { "snowflake_next()" } do |t|
      t.references :order, null: false, foreign_key: true
    end
  end
end

class Order < ActiveRecord::Base
  has_many :parcels
end

class Parcel < ActiveRecord::Base
  belongs_to :order
end

CreateOrders.migrate(:up)

order = Order.create!(item: "tea", parcels: [Parcel.new, Parcel.new])
puts order.id, order.parcel_ids

added = Order.insert_all!([{ item: "coffee" }, { item: "milk" }], returning: %w[id item])
puts added.map { |row| row["id"] }
