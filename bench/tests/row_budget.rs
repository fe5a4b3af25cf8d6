//! What three sequential steps may cost: at most 18 rows and 6 KiB in four commits.

use abide_bench::three_steps;
use abide_store::memory::{MemoryStore, Personality};
use abide_store::rows::{CommitOutcome, Partition};

#[test]
fn three_steps_are_at_most_18_rows_and_6_kib_in_four_commits() {
    let store = MemoryStore::new(Personality::AZURE);
    let shard = Partition::new("shard/0001").unwrap();
    let (mut rows, mut bytes, mut version, mut commits) = (0, 0, None, 0);
    for (turn, changed) in three_steps::commits(1).into_iter().enumerate() {
        let batch = three_steps::batch(changed, version, turn as u64 + 1);
        println!("commit {}: {} rows, {} bytes", turn + 1, batch.rows(), batch.bytes());
        (rows, bytes, commits) = (rows + batch.rows(), bytes + batch.bytes(), commits + 1);
        match store.commit_now(&shard, &batch) {
            CommitOutcome::Committed(receipt) => version = receipt.head,
            other => panic!("{other:?}"),
        }
    }
    println!("{rows} rows, {bytes} bytes, {commits} commits");
    assert_eq!(commits, 4);
    assert!(rows <= 18, "{rows} rows");
    assert!(bytes <= 6 * 1024, "{bytes} bytes");
}
