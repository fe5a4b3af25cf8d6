"""Workers that crash or shut down, and the files they leave."""

import concurrent.futures
import http.client
import itertools
import os
import random
import tempfile
import unittest

from harness import Worker, metadata, until

ADD = {"account": "crash", "amount": 1}
KILLS = 8
KEYS = 400
ATTEMPTS_MAX = 50


class Crash(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.worker = Worker(self.directory)
        self.addCleanup(lambda: self.worker.kill())

    def restart(self):
        self.worker.kill()
        self.worker.start()

    def begin(self, key: str):
        """Starts work that waits for its gate, and returns once the work is claimed."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        call = pool.submit(self.worker.post, "gate.add", {**ADD, "gate": key}, metadata(key))
        probe = {**metadata(key), "x-abide-probe": "1"}
        until(lambda: self.worker.post("gate.add", {}, probe).status == 409, "the claim")
        return call

    def test_the_claim_of_a_killed_process_is_void_and_the_effect_happens_once(self):
        call = self.begin("k")
        self.restart()
        self.assertIsInstance(call.exception(), (ConnectionError, http.client.HTTPException))
        left = self.worker.rows("SELECT incarnation, finished_at FROM work WHERE idempotency_key = 'k'")
        self.assertIn(left, ([(1, None)], []))  # the sweep at startup may have deleted it
        probe = self.worker.post("gate.add", {}, {**metadata("k"), "x-abide-probe": "1"})
        self.assertEqual(probe.reason(), "WORK_UNKNOWN")
        self.worker.post("gate.open", {"gate": "k"})
        again = self.worker.post("gate.add", {**ADD, "gate": "k"}, metadata("k", retry_attempt=1))
        self.assertEqual((again.status, again.json()), (200, {"balance": 1}))
        self.assertEqual(self.worker.rows("SELECT idempotency_key, attempt FROM effects"), [("k", 1)])

    def test_a_kill_before_the_commit_leaves_no_effect(self):
        self.crash_once("before commit")
        self.assertEqual(self.worker.effects("k"), 0)
        self.assert_the_retry_leaves_one_effect()

    def test_after_a_kill_after_the_commit_the_duplicate_gets_the_stored_result(self):
        self.crash_once("after commit")
        self.assertEqual(self.worker.effects("k"), 1)
        self.assert_the_retry_leaves_one_effect()

    def crash_once(self, at: str):
        self.body = {**ADD, "at": at, "marker": os.path.join(self.directory, "died")}
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            self.worker.post("crash.add", self.body, metadata("k"))
        self.restart()

    def assert_the_retry_leaves_one_effect(self):
        again = self.worker.post("crash.add", self.body, metadata("k", retry_attempt=1))
        self.assertEqual((again.status, again.json()), (200, {"balance": 1}))
        self.assertEqual(self.worker.effects("k"), 1)

    def test_with_repeated_kills_under_load_every_key_takes_effect_once(self):
        """Senders retry until they get a response while the process is killed at random. Each key is sent twice."""
        completed = itertools.count()
        progress = 0

        def send_until_done(number: int) -> None:
            nonlocal progress
            activity, body = (
                ("ledger.add", ADD) if number % 2 == 0 else ("conformance", {"op": "run", "tag": f"{number}"})
            )
            results: set[bytes] = set()
            for attempt in range(ATTEMPTS_MAX):
                try:
                    response = self.worker.post(activity, body, metadata(f"k{number}", retry_attempt=attempt))
                    if response.status == 200:
                        results.add(response.body)
                except (OSError, http.client.HTTPException):
                    until(self.worker.is_up, "the restart")
                if results and attempt > 0:
                    break
            self.assertEqual(len(results), 1)
            progress = next(completed)

        chance = random.Random(7)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(send_until_done, number) for number in range(KEYS)]
            for kill in range(KILLS):
                goal = KEYS * (kill + chance.random()) / KILLS
                until(lambda: progress >= goal, "progress")
                self.restart()
            for call in calls:
                call.result()
        self.assertEqual(
            self.worker.rows("SELECT count(*), count(DISTINCT idempotency_key) FROM effects"), [(KEYS // 2,) * 2]
        )
        self.assertEqual(self.worker.rows("SELECT balance FROM accounts"), [(KEYS // 2,)])
        self.assertEqual(self.worker.rows("SELECT count(*), min(runs), max(runs) FROM runs"), [(KEYS // 2, 1, 1)])

    def test_a_newer_process_on_the_same_database_stops_the_older_one(self):
        newer = Worker(self.directory)
        self.addCleanup(newer.kill)
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            self.worker.post("ledger.add", ADD, metadata("k"))
        self.assertEqual(self.worker.process.wait(20), 1)
        self.assertEqual(newer.post("ledger.add", ADD, metadata("k")).status, 200)
        self.assertEqual(newer.effects("k"), 1)


class Shutdown(unittest.TestCase):
    def test_sigterm_lets_running_work_finish_and_closes_the_database(self):
        with tempfile.TemporaryDirectory() as directory:
            worker = Worker(directory)
            idle = worker.connect()
            idle.connect()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                wait = {"op": "wait", "tag": "t", "ms": 700}
                call = pool.submit(worker.post, "conformance", wait, metadata("k"))
                probe = {**metadata("k"), "x-abide-probe": "1"}
                until(lambda: worker.post("conformance", wait, probe).status == 409, "the claim")
                worker.process.terminate()
                self.assertEqual(idle.sock.recv(1), b"")  # the idle connection closes immediately
                self.assertFalse(call.done())  # but the busy connection stays open
                self.assertEqual(worker.stop(), 0)
                self.assertEqual((call.result().status, call.result().json()), (200, {"runs": 1}))
            idle.close()
            self.assertFalse(os.path.exists(worker.db + "-wal"))  # closed cleanly: everything is in the main file
            worker.start()
            self.assertEqual(worker.post("conformance", wait, metadata("k")).json(), {"runs": 1})
            worker.kill()
