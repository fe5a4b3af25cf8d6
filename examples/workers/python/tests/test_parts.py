"""Tests that control the clock or inspect internals: claim expiry, retention, commits of the database."""

import asyncio
import dataclasses
import functools
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from receiver import Activity, Call, Database, Prepared, Receiver, Transactional, work  # noqa: E402
from receiver.metadata import Metadata, decode, fallback  # noqa: E402
from receiver.receive import SWEEP_MAX  # noqa: E402
from receiver.wire import Rest  # noqa: E402

DAY_MS = 24 * 60 * 60 * 1000
NOTES = "CREATE TABLE notes (text TEXT);"


class Parts(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.database = Database(f"{directory.name}/worker.db", work.SCHEMA, NOTES)
        self.addCleanup(self.database.close)
        self.now = 1_000_000

    def receiver(self, **activities: Activity) -> Receiver:
        return Receiver(self.database, activities, handler_timeout_ms=60_000, clock=lambda: self.now)

    def call(self, activity: str, key: str) -> Call:
        return Call(activity, Metadata("e", key, "e"), None, self.database, Rest())

    async def count(self, table: str) -> int:
        return await self.database.transaction(lambda tx: tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    async def test_an_expired_claim_is_replaced_and_the_slow_handlers_effect_does_not_happen(self):
        slow_may_continue = asyncio.Event()
        runs = 0

        async def prepare(_call):
            nonlocal runs
            runs += 1
            text = f"run {runs}"
            if runs == 1:
                await slow_may_continue.wait()

            def effect(tx):
                tx.execute("INSERT INTO notes VALUES (?)", (text,))
                return text

            return effect

        receiver = self.receiver(note=Prepared(prepare))
        slow = asyncio.create_task(receiver.receive(self.call("note", "k")))
        while not runs:
            await asyncio.sleep(0)
        self.now += 59_999
        self.assertIn(b"IN_PROGRESS", (await receiver.receive(self.call("note", "k"))).body)
        self.now += 1
        self.assertEqual((await receiver.receive(self.call("note", "k"))).body, b'"run 2"')
        slow_may_continue.set()
        self.assertIn(b"CLAIM_LOST", (await slow).body)
        self.assertEqual(await self.count("notes"), 1)
        self.assertEqual((await receiver.receive(self.call("note", "k"))).body, b'"run 2"')

    async def test_a_claim_of_another_incarnation_is_void_before_any_sweep(self):
        identity, claim = work.Identity("e", "nothing", "k"), work.Claim(0, 1, self.now + 60_000)
        await self.database.transaction(lambda tx: work.claim(tx, identity, claim))
        receiver = self.receiver(nothing=Transactional(lambda _call, _tx: None))
        self.assertEqual((await receiver.probe(self.call("nothing", "k"))).status, 404)
        self.assertEqual((await receiver.receive(self.call("nothing", "k"))).body, b"null")

    async def test_an_output_that_is_too_long_is_a_permanent_failure_without_effect(self):
        def run(_call, tx):
            tx.execute("INSERT INTO notes VALUES ('x')")
            return "x" * 1024 * 1024

        receiver = self.receiver(long=Transactional(run))
        results = [await receiver.receive(self.call("long", "k")) for _ in range(2)]
        self.assertEqual(results[0], results[1])
        self.assertIn(b"OUTPUT_TOO_LARGE", results[0].body)
        self.assertEqual(await self.count("notes"), 0)

    async def test_an_output_that_is_nested_too_deeply_is_a_permanent_failure_without_effect(self):
        def nested(depth):
            return functools.reduce(lambda inner, n: (inner,) if n % 2 else {"a": [inner]}, range(depth), [])

        def run(call, tx):
            tx.execute("INSERT INTO notes VALUES ('x')")
            return json.loads("[" * call.input + "]" * call.input) if call.input else nested(10_000)

        receiver = self.receiver(deep=Transactional(run))
        for depth in (65, 0):
            call = dataclasses.replace(self.call("deep", str(depth)), input=depth)
            results = [await receiver.receive(call) for _ in range(2)]
            self.assertEqual(results[0], results[1])
            self.assertIn(b"OUTPUT_TOO_LARGE", results[0].body)
        self.assertEqual(await self.count("notes"), 0)
        most = await receiver.receive(dataclasses.replace(self.call("deep", "64"), input=64))
        self.assertEqual((most.status, await self.count("notes")), (200, 1))

    async def test_records_are_kept_for_the_retention_period_then_deleted_in_bounded_batches(self):
        receiver = self.receiver(nothing=Transactional(lambda _call, _tx: None))
        await asyncio.gather(*(receiver.receive(self.call("nothing", str(n))) for n in range(SWEEP_MAX + 3)))
        self.now += 7 * DAY_MS - 1
        self.assertFalse(await receiver.sweep())
        self.assertEqual(await self.count("work"), SWEEP_MAX + 3)
        self.now += 1
        self.assertTrue(await receiver.sweep())
        self.assertEqual(await self.count("work"), 3)
        self.assertFalse(await receiver.sweep())
        self.assertEqual(await self.count("work"), 0)

    async def test_void_claims_are_swept_and_live_ones_are_not(self):
        claims = {
            "dead": work.Claim(0, 1, self.now + 5),
            "late": work.Claim(1, 1, self.now),
            "live": work.Claim(1, 2, self.now + 1),
        }
        for key, claim in claims.items():
            claim_work = functools.partial(work.claim, identity=work.Identity("e", "a", key), claim=claim)
            await self.database.transaction(claim_work)
        await self.receiver().sweep()
        left = await self.database.transaction(lambda tx: tx.execute("SELECT idempotency_key FROM work").fetchall())
        self.assertEqual(left, [("live",)])

    async def test_queued_transactions_share_a_commit_and_each_is_atomic(self):
        commits = 0
        commit = self.database._commit

        def counted():
            nonlocal commits
            commits += 1
            commit()

        self.database._commit = counted

        def job(number):
            def run(tx):
                tx.execute("INSERT INTO notes VALUES (?)", (str(number),))
                if number % 2:
                    raise ValueError(number)

            return run

        outcomes = await asyncio.gather(*(self.database.transaction(job(n)) for n in range(10)), return_exceptions=True)
        self.assertEqual([isinstance(outcome, ValueError) for outcome in outcomes], [n % 2 == 1 for n in range(10)])
        self.assertEqual(commits, 1)
        self.assertEqual(await self.count("notes"), 5)

    async def test_every_commit_is_synced_to_disk(self):
        connection = self.database._connection
        self.assertEqual(connection.execute("PRAGMA journal_mode").fetchone(), ("wal",))
        self.assertEqual(connection.execute("PRAGMA synchronous").fetchone(), (2,))

    def test_the_correlation_id_defaults_to_the_execution_id(self):
        pairs = [("x-tpf-execution-id", "e"), ("x-tpf-idempotency-key", "k")]
        self.assertEqual(decode(pairs), Metadata("e", "k", "e", 0, None, None, None))
        self.assertEqual(decode([*pairs, ("X-TPF-Correlation-Id", "c")]).correlation_id, "c")
        self.assertIsNone(decode([("x-tpf-execution-id", " "), ("x-other", "1")]))

    def test_the_fallback_key_is_the_hash_of_activity_and_body(self):
        digest = "6d8a39a291dba279b0299a38b5835a23958de12a951f847f1f5ec91e743b3ad4"  # printf 'a\\0{}' | sha256sum
        self.assertEqual(fallback("a", b"{}"), Metadata("", digest, ""))
