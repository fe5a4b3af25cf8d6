//! Compiles the protobuf contracts of `proto/`. The compiler is a crate, so it need not be installed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../proto";
    println!("cargo::rerun-if-changed={root}");
    let files =
        ["abide/dispatch/v1/activities.proto", "google/rpc/status.proto", "google/rpc/error_details.proto"];
    let descriptors = protox::compile(files, [root])?;
    tonic_prost_build::configure().bytes(".abide.dispatch.v1.Payload").compile_fds(descriptors)?;
    Ok(())
}
