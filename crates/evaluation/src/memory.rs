//! The memory that the parts of JSON values take, as the allocator counts it; never less than what is allocated.

/// A value without what it points to.
pub const VALUE_BYTES: u64 = size_of::<serde_json::Value>() as u64;
/// A node of a B-tree has room for 11 entries, and for 12 edges if it is not a leaf.
const NODE_BYTES: u64 = 11 * (size_of::<String>() as u64 + VALUE_BYTES) + 12 * 8 + 16;

/// The elements of an array.
pub fn array(items: usize) -> u64 {
    items as u64 * VALUE_BYTES
}

/// The fields of an object without their names. Up to ten are in one node; of more, each node but the root has at least
/// five.
pub fn object(fields: usize) -> u64 {
    match fields as u64 {
        0 => 0,
        1..=10 => NODE_BYTES,
        fields => (1 + fields / 5) * NODE_BYTES,
    }
}
