//! A program that embeds the server and adds one activity: `cargo run --package abide --example embed`.
//!
//! Publish a definition with a task that has `"activity": "Greet"`, and start it. The API is that of `abide serve`.

use abide::{ActivityCategory, ActivityDeclaration, Config, LocalInvocation, ServerBuilder};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greet = |call: LocalInvocation| async move { Ok(json!({"hello": call.input.get("name")}).into()) };
    let server = ServerBuilder::new(Config::default())
        .activity(ActivityDeclaration::new("Greet", ActivityCategory::Other), greet)
        .start()
        .await?;
    server.ready().await;
    println!("http://{}", server.address());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
