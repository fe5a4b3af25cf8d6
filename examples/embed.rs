//! A server in a program of its own, with one activity: `cargo run --package abide --example embed`.
//!
//! Then publish a definition whose task has `"activity": "Greet"`, and start it: the interface is that of `abide serve`.

use abide::{Builder, Category, Config, Declaration, Invocation};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greet = |call: Invocation| async move { Ok(json!({"hello": call.input.get("name")}).into()) };
    let server = Builder::new(Config::default())
        .activity(Declaration::new("Greet", Category::Other), greet)
        .start()
        .await?;
    server.ready().await;
    println!("http://{}", server.address());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
