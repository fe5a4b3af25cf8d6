//! Any value of each type, for property tests.

use proptest::arbitrary::{Arbitrary, StrategyFor, any};
use proptest::strategy::{Map, Strategy};

use crate::{
    CommandId, Digest, IdempotencyKey, KeyDigest, PageNumber, RunId, RunNumber, Sequence, Timestamp,
};

macro_rules! any_value_inside {
    ($($type:ident($inside:ty)),*) => {
        $(impl Arbitrary for $type {
            type Parameters = ();
            type Strategy = Map<StrategyFor<$inside>, fn($inside) -> Self>;

            fn arbitrary_with((): ()) -> Self::Strategy {
                any::<$inside>().prop_map($type)
            }
        })*
    };
}

any_value_inside!(
    CommandId(u64),
    Digest([u8; 32]),
    IdempotencyKey([u8; 32]),
    KeyDigest(Digest),
    RunId(u64),
    RunNumber(u32),
    Sequence(u64),
    Timestamp(i64),
    PageNumber(u64)
);
