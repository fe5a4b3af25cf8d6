//! One node process: its shards, connections and activities, which all end at once when it crashes.
//!
//! LOCAL is the receiver without a wire: its core is called in process, over the same rows. So over every transport the
//! same handler is behind the same idempotency records, and effects are counted alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abide_dispatch::remote::{BreakerConfig, Outbound, RemoteRegistry, SystemSecrets};
use abide_dispatch::{
    ActivityRouter, ActivityTransport, AttemptResult, CallAttempt, CallFailure, EgressGuard,
    EgressGuardConfig, LocalActivities, LocalInvocation,
};
use abide_receiver::{ActivityRequest as Received, Receiver};
use abide_runtime::config::ActivityTargets;
use abide_runtime::definitions::Definitions;
use abide_runtime::node::NodeOptions;
use abide_runtime::run::{CallRecord, SettledCallCursor};
use abide_runtime::{Node, RunView, ShardConfig, ShardReply, ShardRequest, StartRequest};
use abide_store::memory::MemoryStore;
use abide_store::public::{PublicQuery, PublicTables};
use abide_store::rows::PrivateRows;
use abide_store::tables::dead_letters::{self, DeadLetterRow};
use abide_workflow::{InstanceId, Message, Plan, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::counting_handler::{ActivityLog, ReceivedRequest};
use crate::crashing_store::{CrashPoint, CrashingStore};
use crate::fixture::{ParityFixture, TEST_TIMEOUT, runtime, shards};
use crate::transport::{self, ParityTransport};

pub(crate) struct NodeProcess {
    node: Arc<Node<CrashingStore>>,
    activity_router: Arc<ActivityRouter>,
    store: Arc<CrashingStore>,
    book: Arc<ActivityLog>,
    over: ParityTransport,
    // Dropped last, because dropping the other fields may need its threads.
    inside: Runtime,
}

/// Each process gets its own incarnation number.
static INCARNATIONS: AtomicU64 = AtomicU64::new(1);

impl ParityFixture {
    /// Starts a process that lives until it is dropped, with this workflow published.
    pub(crate) fn process(&self, definition: &Value) -> NodeProcess {
        self.start_until_crash(definition, None)
    }

    /// Starts a process that crashes at the given point, with this workflow published before.
    pub(crate) fn start_until_crash(
        &self,
        definition: &Value,
        crash_point: Option<CrashPoint>,
    ) -> NodeProcess {
        let inside = runtime();
        let store = Arc::new(CrashingStore::new(Arc::clone(&self.rows)));
        let router = Arc::new(inside.block_on(self.activity_router()));
        let mut config = ShardConfig::new(
            "parity".to_owned(),
            INCARNATIONS.fetch_add(1, Ordering::SeqCst),
            shards(),
            &store.capabilities(),
        );
        config.public_index_delay = Duration::from_millis(1);
        config.targets = targets(&router);
        let options =
            NodeOptions { shard_config: config, concurrent_calls_max: 100, drain_grace: Duration::ZERO };
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let node = inside.block_on(async {
            let registry = router.registry_json();
            definitions.publish(&definition.to_string(), Some(&registry), Timestamp(0)).await.unwrap();
            store.arm(crash_point);
            Node::start(Arc::clone(&store), definitions, &router, options).unwrap()
        });
        let node = Arc::new(node);
        let book = Arc::clone(self.activity_log());
        NodeProcess { node, activity_router: router, store, book, over: self.over, inside }
    }

    async fn activity_router(&self) -> ActivityRouter {
        // Scenarios fail on purpose, so the circuit breaker must stay closed. Other tests cover it.
        let breaker = BreakerConfig { failure_threshold: u32::MAX, ..BreakerConfig::default() };
        let allow = vec!["127.0.0.1".parse().unwrap()];
        let guard = EgressGuard::new(EgressGuardConfig { allow, ..EgressGuardConfig::default() });
        let directory = RemoteRegistry::new(Outbound::new(guard, SystemSecrets::default(), breaker).unwrap());
        let mut local = LocalActivities::default();
        for activity in transport::declarations() {
            match self.over {
                ParityTransport::Remote(wire) => {
                    directory.put(transport::remote(&activity, wire, self.address, self.probe)).unwrap();
                }
                ParityTransport::Local => {
                    let name = activity.name.clone();
                    let log = Arc::clone(self.activity_log());
                    let receiver = self.receiver().await;
                    let run = move |call| in_process(receiver.clone(), name.clone(), Arc::clone(&log), call);
                    local.register(activity, run).unwrap();
                }
            }
        }
        ActivityRouter::new(local, Arc::new(directory))
    }
}

async fn in_process(
    receiver: Receiver<MemoryStore>,
    activity: String,
    log: Arc<ActivityLog>,
    call: LocalInvocation,
) -> Result<Arc<Value>, CallFailure> {
    let keys = call.metadata.encode();
    let keys = keys.map(|(key, value)| (key.to_owned(), value.into_owned().into_bytes())).collect();
    let _exchange = log.begin_exchange(ReceivedRequest { probe: false, keys });
    let input = Some(serde_json::to_vec(&*call.input).unwrap().into());
    let reply = receiver.invoke(Received { activity, metadata: Ok(Some(call.metadata)), input }).await;
    Ok(Arc::new(serde_json::from_slice(&reply.result?).unwrap()))
}

/// The labels of targets, as a server passes them to its shards.
fn targets(router: &Arc<ActivityRouter>) -> ActivityTargets {
    let router = Arc::clone(router);
    ActivityTargets::new(move |activity| router.target_label(activity))
}

impl NodeProcess {
    /// Starts a run and waits for its end; `None` if the process crashes before.
    pub(crate) fn run(&self, id: &str, input: Value) -> Option<RunView> {
        let ended = async {
            let reply = self.start_now(id, input).await;
            assert!(matches!(reply, ShardReply::Started(_)), "{reply:?}");
            self.end(id).await
        };
        self.block_on_with_timeout(async {
            tokio::select! {
                view = ended => Some(view),
                () = self.store.wait_for_crash() => None,
            }
        })
    }

    /// Waits until the public index is up to date; false if the process crashes before.
    pub(crate) fn is_shown(&self) -> bool {
        self.block_on_with_timeout(async {
            tokio::select! {
                shown = self.node.await_public_index() => shown.is_ok(),
                () = self.store.wait_for_crash() => false,
            }
        })
    }

    pub(crate) fn start(&self, id: &str, input: Value) {
        let reply = self.block_on_with_timeout(self.start_now(id, input));
        assert!(matches!(reply, ShardReply::Started(_)), "{reply:?}");
    }

    pub(crate) fn wait_for_end(&self, id: &str) -> RunView {
        self.block_on_with_timeout(self.end(id))
    }

    pub(crate) fn has_instance(&self, id: &str) -> bool {
        self.block_on_with_timeout(self.node.view_instance(&name(id))).unwrap().is_some()
    }

    pub(crate) fn send_control(&self, id: &str, message: &Message) {
        let reply = self.block_on_with_timeout(
            self.ask(|| ShardRequest::SendMessage { instance_id: name(id), message: message.clone() }),
        );
        assert!(matches!(reply, ShardReply::Accepted | ShardReply::Rewound(_)), "{reply:?}");
    }

    /// Makes an attempt of a call that no run has scheduled.
    pub(crate) fn invoke(&self, call: CallAttempt) -> Result<Value, CallFailure> {
        self.block_on_with_timeout(invoke_directly(Arc::clone(&self.activity_router), call))
    }

    /// Like [`Self::invoke`], in the background.
    pub(crate) fn spawn_invoke(&self, call: CallAttempt) -> JoinHandle<Result<Value, CallFailure>> {
        self.inside.spawn(invoke_directly(Arc::clone(&self.activity_router), call))
    }

    pub(crate) fn join<T>(&self, task: JoinHandle<T>) -> T {
        self.block_on_with_timeout(task).unwrap()
    }

    /// Attempts that the node is waiting for.
    pub(crate) fn open_exchanges(&self) -> usize {
        match self.over {
            ParityTransport::Local => self.book.open_exchanges.load(Ordering::SeqCst),
            ParityTransport::Remote(_) => {
                self.activity_router.remote().all().iter().map(|remote| remote.in_flight()).sum()
            }
        }
    }

    /// The settled calls of an instance's last run, in order; none may be open.
    pub(crate) fn calls(&self, id: &str) -> Vec<CallRecord> {
        self.block_on_with_timeout(async {
            let id = name(id);
            let reader = self.node.call_reader(self.node.shard_of_instance(&id)).unwrap();
            let run = reader.find_run(&id, None).await.unwrap().unwrap();
            let open = reader.open_calls(Some(run.run_id), None, 10).await.unwrap();
            assert!(open.calls.is_empty(), "an ended run has open calls: {open:?}");
            let settled = reader.settled_calls(&run, SettledCallCursor::FIRST, 100).await.unwrap();
            settled.calls.into_iter().map(|(_, call)| call).collect()
        })
    }

    /// Time of the next attempt of a call that waits for a retry, if there is one.
    pub(crate) fn next_attempt_at(&self, id: &str) -> Option<i64> {
        self.block_on_with_timeout(async {
            let shard = self.node.shard_of_instance(&name(id));
            let open = self.node.call_reader(shard).unwrap().open_calls(None, None, 10).await.unwrap();
            open.calls.into_iter().find_map(|(_, call)| Some(call?.next_attempt_at?.0))
        })
    }

    /// The dead letters of an instance, each with its original message.
    pub(crate) fn dead_letters(&self, id: &str) -> Vec<(DeadLetterRow, Value)> {
        self.block_on_with_timeout(async {
            self.node.await_public_index().await.unwrap();
            let page = self
                .store
                .query(&dead_letters::SCHEMA, &PublicQuery::default().filter("InstanceId", id))
                .await;
            let letters = page.unwrap().rows.into_iter().map(|row| {
                let letter = DeadLetterRow::from_public_row(&row).unwrap();
                let message = serde_json::from_str(&letter.original_message).unwrap();
                (letter, message)
            });
            letters.collect()
        })
    }

    async fn start_now(&self, id: &str, input: Value) -> ShardReply {
        let plan = self.plan().await;
        let start = StartRequest {
            instance_id: name(id),
            plan,
            input: input.into(),
            event: None,
            correlation_id: "order-7".to_owned(),
            entity_id: None,
            entity_type: None,
            idempotency: None,
            await_end: None,
        };
        self.ask(|| ShardRequest::Start(Box::new(start.clone()))).await
    }

    async fn plan(&self) -> Arc<Plan> {
        self.node.definitions().resolve(WORKFLOW, None).await.unwrap()
    }

    async fn end(&self, id: &str) -> RunView {
        match self.ask(|| ShardRequest::AwaitEnd { instance_id: name(id), run_number: None }).await {
            ShardReply::Ended(view) => *view,
            reply => panic!("{reply:?}"),
        }
    }

    /// Repeats the request until the shard is ready.
    async fn ask(&self, request: impl Fn() -> ShardRequest) -> ShardReply {
        let mut retries = tokio::time::interval(Duration::from_millis(1));
        loop {
            match self.node.request(request()).await.unwrap() {
                ShardReply::Refused(error) if error.is_transient() => retries.tick().await,
                reply => return reply,
            };
        }
    }

    fn block_on_with_timeout<T>(&self, future: impl Future<Output = T>) -> T {
        self.inside
            .block_on(async { tokio::time::timeout(TEST_TIMEOUT, future).await })
            .expect("the operation should finish in time")
    }
}

async fn invoke_directly(router: Arc<ActivityRouter>, call: CallAttempt) -> Result<Value, CallFailure> {
    match router.run_attempt(call).await {
        AttemptResult::Completed(output) => Ok((*output).clone()),
        AttemptResult::Failed(failure) => Err(failure),
    }
}

fn name(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

/// The name of every workflow in these tests.
pub(crate) const WORKFLOW: &str = "parity";

/// A workflow with these states, starting at `Begin`.
pub(crate) fn workflow(states: &Value) -> Value {
    json!({"$schema": "workflow-schema-v1.json", "id": WORKFLOW, "version": "1.0.0", "startAt": "Begin", "states": states})
}

/// A task with this many attempts, retried without delay.
pub(crate) fn task(activity: &str, input: &Value, attempts: u32, next: &str) -> Value {
    let retry = json!({"maxAttempts": attempts, "initialInterval": "PT0.001S", "maxInterval": "PT0.001S"});
    json!({"type": "task", "activity": activity, "input": input, "retryPolicy": retry, "output": "$.state.last", "next": next})
}

/// A workflow of one task with this many attempts.
pub(crate) fn one_task(input: &Value, attempts: u32) -> Value {
    workflow(
        &json!({"Begin": task(transport::WORK, input, attempts, "Done"), "Done": {"type": "succeed", "output": "$.state.last"}}),
    )
}
