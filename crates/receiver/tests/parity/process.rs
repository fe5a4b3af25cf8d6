//! One process of the node: its shards, its connections and its activities, gone all at once when it dies.
//!
//! LOCAL is the receiver without a wire: its core is called in process, over the same rows. So the same handler is behind the same dedupe
//! on every way, and effects count alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abide_dispatch::remote::{BreakerConfig, Directory, Everywhere, Outbound, SystemSecrets};
use abide_dispatch::{Activities, Answer, Call, Failure, Guard, GuardConfig, Invocation, Transport};
use abide_receiver::{Receiver, Request as Received};
use abide_runtime::config::Targets;
use abide_runtime::definitions::Definitions;
use abide_runtime::node::Options;
use abide_runtime::run::{JournaledCall, SettledPlace};
use abide_runtime::{Config, Node, Reply, Request, RunView, Start};
use abide_store::memory::MemoryStore;
use abide_store::public::{PublicTables, Query};
use abide_store::rows::PrivateRows;
use abide_store::tables::engine_dlq::{self, DeadLetter};
use abide_workflow::{InstanceId, Message, Plan, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::over::{self, Over};
use crate::store::{Death, MortalStore};
use crate::work::{Arrival, Book};
use crate::world::{SOON, World, runtime, shards};

pub(crate) struct Process {
    node: Arc<Node<MortalStore>>,
    everywhere: Arc<Everywhere>,
    store: Arc<MortalStore>,
    book: Arc<Book>,
    over: Over,
    // Dropped last: until then there are threads for what the others want to do.
    inside: Runtime,
}

/// No two processes have the same.
static INCARNATIONS: AtomicU64 = AtomicU64::new(1);

impl World {
    /// A process that lives until it is dropped, with this workflow published.
    pub(crate) fn process(&self, definition: &Value) -> Process {
        self.mortal(definition, None)
    }

    /// A process that dies in time, with this workflow published before.
    pub(crate) fn mortal(&self, definition: &Value, death: Option<Death>) -> Process {
        let inside = runtime();
        let store = Arc::new(MortalStore::new(Arc::clone(&self.rows)));
        let everywhere = Arc::new(inside.block_on(self.everywhere()));
        let mut config = Config::new(
            "parity".to_owned(),
            INCARNATIONS.fetch_add(1, Ordering::SeqCst),
            shards(),
            &store.capabilities(),
        );
        config.feed_linger = Duration::from_millis(1);
        config.targets = targets(&everywhere);
        let options = Options { shard: config, activities_max: 100, drain_grace: Duration::ZERO };
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let node = inside.block_on(async {
            let registry = everywhere.registry_json();
            definitions.publish(&definition.to_string(), Some(&registry), Timestamp(0)).await.unwrap();
            store.begin(death);
            Node::start(Arc::clone(&store), definitions, &everywhere, options).unwrap()
        });
        let (node, book) = (Arc::new(node), Arc::clone(self.book()));
        Process { node, everywhere, store, book, over: self.over, inside }
    }

    async fn everywhere(&self) -> Everywhere {
        // Statuses that mean trouble are played on purpose; when a circuit opens is tested elsewhere.
        let breaker = BreakerConfig { troubles: u32::MAX, ..BreakerConfig::default() };
        let allow = vec!["127.0.0.1".parse().unwrap()];
        let guard = Guard::new(GuardConfig { allow, ..GuardConfig::default() });
        let directory = Directory::new(Outbound::new(guard, SystemSecrets::default(), breaker).unwrap());
        let mut local = Activities::default();
        for activity in over::declarations() {
            match self.over {
                Over::Remote(wire) => {
                    directory.put(over::remote(&activity, wire, self.address, self.probe)).unwrap();
                }
                Over::Local => {
                    let (name, book) = (activity.name.clone(), Arc::clone(self.book()));
                    let receiver = self.receiver().await;
                    let run = move |call| in_process(receiver.clone(), name.clone(), Arc::clone(&book), call);
                    local.register(activity, run).unwrap();
                }
            }
        }
        Everywhere::new(local, Arc::new(directory))
    }
}

async fn in_process(
    receiver: Receiver<MemoryStore>,
    activity: String,
    book: Arc<Book>,
    call: Invocation,
) -> Result<Arc<Value>, Failure> {
    let keys = call.metadata.encode();
    let keys = keys.map(|(key, value)| (key.to_owned(), value.into_owned().into_bytes())).collect();
    let _exchange = book.exchange(Arrival { probe: false, keys });
    let input = Some(serde_json::to_vec(&*call.input).unwrap().into());
    let reply = receiver.invoke(Received { activity, metadata: Ok(Some(call.metadata)), input }).await;
    Ok(Arc::new(serde_json::from_slice(&reply.answer?).unwrap()))
}

/// As a server tells its shards.
fn targets(everywhere: &Arc<Everywhere>) -> Targets {
    let everywhere = Arc::clone(everywhere);
    Targets::new(move |activity| everywhere.whereabouts(activity))
}

impl Process {
    /// Begins a run and waits for its end, or for the death of the process: then there is none.
    pub(crate) fn run(&self, id: &str, input: Value) -> Option<RunView> {
        let ended = async {
            let reply = self.start_now(id, input).await;
            assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
            self.end(id).await
        };
        self.within(async {
            tokio::select! {
                view = ended => Some(view),
                () = self.store.died() => None,
            }
        })
    }

    /// Waits until everything is shown in public, or for the death of the process: then it is not.
    pub(crate) fn is_shown(&self) -> bool {
        self.within(async {
            tokio::select! {
                shown = self.node.public_caught_up() => shown.is_ok(),
                () = self.store.died() => false,
            }
        })
    }

    /// Begins a run.
    pub(crate) fn start(&self, id: &str, input: Value) {
        let reply = self.within(self.start_now(id, input));
        assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
    }

    /// The end of a run.
    pub(crate) fn ended(&self, id: &str) -> RunView {
        self.within(self.end(id))
    }

    /// Whether there is such an instance.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.within(self.node.show(&name(id))).unwrap().is_some()
    }

    /// Gives a run an order.
    pub(crate) fn order(&self, id: &str, message: &Message) {
        let reply =
            self.within(self.ask(|| Request::Deliver { instance_id: name(id), message: message.clone() }));
        assert!(matches!(reply, Reply::Accepted), "{reply:?}");
    }

    /// Delivers a call that did not come from a run.
    pub(crate) fn deliver(&self, call: Call) -> Result<Value, Failure> {
        self.within(answered(Arc::clone(&self.everywhere), call))
    }

    /// The same, in the background.
    pub(crate) fn delivering(&self, call: Call) -> JoinHandle<Result<Value, Failure>> {
        self.inside.spawn(answered(Arc::clone(&self.everywhere), call))
    }

    /// What comes of it.
    pub(crate) fn joined<T>(&self, task: JoinHandle<T>) -> T {
        self.within(task).unwrap()
    }

    /// Deliveries that the node waits for.
    pub(crate) fn under_way(&self) -> usize {
        match self.over {
            Over::Local => self.book.exchanges.load(Ordering::SeqCst),
            Over::Remote(_) => self.everywhere.remote().all().iter().map(|remote| remote.under_way()).sum(),
        }
    }

    /// The settled calls of an instance's last run, in order; none may be open.
    pub(crate) fn calls(&self, id: &str) -> Vec<JournaledCall> {
        self.within(async {
            let id = name(id);
            let reader = self.node.calls_of(self.node.shard_of_instance(&id)).unwrap();
            let run = reader.run(&id, None).await.unwrap().unwrap();
            let open = reader.open(Some(run.number), None, 10).await.unwrap();
            assert!(open.calls.is_empty(), "calls of an ended run are open: {open:?}");
            let settled = reader.settled(&run, SettledPlace::FIRST, 100).await.unwrap();
            settled.calls.into_iter().map(|(_, call)| call).collect()
        })
    }

    /// When a call of the instance is delivered again, if one waits for that.
    pub(crate) fn next_attempt_at(&self, id: &str) -> Option<i64> {
        self.within(async {
            let shard = self.node.shard_of_instance(&name(id));
            let open = self.node.calls_of(shard).unwrap().open(None, None, 10).await.unwrap();
            open.calls.into_iter().find_map(|(_, call)| Some(call?.next_attempt_at?.0))
        })
    }

    /// The dead letters of an instance: what each says, and what its message says.
    pub(crate) fn letters(&self, id: &str) -> Vec<(DeadLetter, Value)> {
        self.within(async {
            self.node.public_caught_up().await.unwrap();
            let page = self.store.query(&engine_dlq::SCHEMA, &Query::default().equal("InstanceId", id)).await;
            let letters = page.unwrap().rows.into_iter().map(|row| {
                let letter = DeadLetter::from_row(&row).unwrap();
                let message = serde_json::from_str(&letter.original_message).unwrap();
                (letter, message)
            });
            letters.collect()
        })
    }

    async fn start_now(&self, id: &str, input: Value) -> Reply {
        let plan = self.plan().await;
        let start = Start {
            instance_id: name(id),
            plan,
            input: input.into(),
            event: None,
            correlation_id: "order-7".to_owned(),
            entity_id: None,
            repeat: None,
            await_end: None,
        };
        self.ask(|| Request::Start(Box::new(start.clone()))).await
    }

    async fn plan(&self) -> Arc<Plan> {
        self.node.definitions().pick(WORKFLOW, None).await.unwrap()
    }

    async fn end(&self, id: &str) -> RunView {
        match self.ask(|| Request::AwaitEnd { instance_id: name(id), run: None }).await {
            Reply::Ended(view) => *view,
            reply => panic!("{reply:?}"),
        }
    }

    /// Asks until the shard is ready to answer.
    async fn ask(&self, request: impl Fn() -> Request) -> Reply {
        let mut again = tokio::time::interval(Duration::from_millis(1));
        loop {
            match self.node.ask(request()).await.unwrap() {
                Reply::Refused(refused) if refused.is_transient() => again.tick().await,
                reply => return reply,
            };
        }
    }

    fn within<T>(&self, what: impl Future<Output = T>) -> T {
        self.inside.block_on(async { tokio::time::timeout(SOON, what).await }).expect("an answer in time")
    }
}

async fn answered(everywhere: Arc<Everywhere>, call: Call) -> Result<Value, Failure> {
    match everywhere.deliver(call).await {
        Answer::Completed(output) => Ok((*output).clone()),
        Answer::Failed(failure) => Err(failure),
    }
}

fn name(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

/// What every workflow here is called.
pub(crate) const WORKFLOW: &str = "parity";

/// A workflow of these states, which begins with `Begin`.
pub(crate) fn workflow(states: &Value) -> Value {
    json!({"$schema": "workflow-schema-v1.json", "id": WORKFLOW, "version": "1.0.0", "startAt": "Begin", "states": states})
}

/// A task that is tried so often, at once.
pub(crate) fn task(activity: &str, input: &Value, attempts: u32, next: &str) -> Value {
    let retry = json!({"maxAttempts": attempts, "initialInterval": "PT0.001S", "maxInterval": "PT0.001S"});
    json!({"type": "task", "activity": activity, "input": input, "retryPolicy": retry, "output": "$.state.last", "next": next})
}

/// One task, tried so often, and the end.
pub(crate) fn one_task(input: &Value, attempts: u32) -> Value {
    workflow(
        &json!({"Begin": task(over::WORK, input, attempts, "Done"), "Done": {"type": "succeed", "output": "$.state.last"}}),
    )
}
