//! The receiver in Rust keeps every rule, over every wire.

use crate::planted::Mistake;
use crate::world::{serve, setting};
use abide_conform::{Verdict, Wire, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_keeps_every_rule_over_every_wire() {
    for transport in Wire::ALL {
        let url = serve(Mistake::None).await;
        let report = run(&setting(&url, transport), |_| {}).await.unwrap();
        let broken: Vec<_> =
            report.findings.iter().filter(|finding| finding.verdict != Verdict::Passed).collect();
        assert!(broken.is_empty(), "{transport:?}: {broken:#?}");
        assert!(report.is_conformant() && report.findings.len() >= 45, "{}", report.findings.len());
    }
}
