"""Duplicates, claims, deadlines and failures, over HTTP."""

import concurrent.futures
import contextlib
import sqlite3
import time

from harness import WorkerTest, metadata, send, until

ADD = {"account": "dedupe", "amount": 1}
FAR = 4102444800000  # the year 2100


class Duplicates(WorkerTest):
    def test_a_duplicate_gets_the_stored_result_byte_for_byte_and_has_no_effect(self):
        first = self.worker.post("ledger.add", ADD, metadata(self.key()))
        again = self.worker.post("ledger.add", ADD, metadata(self.key(), retry_attempt=1))
        self.assertEqual((first.status, first.body), (again.status, again.body))
        self.assertEqual(first.status, 200)
        self.assertEqual(self.worker.effects(self.key()), 1)

    def test_the_same_key_under_another_execution_or_activity_is_new_work(self):
        for execution in ("one", "two"):
            self.worker.post("ledger.add", ADD, metadata(self.key(), execution))
        self.assertEqual(self.worker.effects(self.key()), 2)
        self.assertEqual(self.worker.post("echo", 7, metadata(self.key(), "one")).json(), 7)

    def test_header_names_are_caseinsensitive(self):
        headers = {"X-TPF-Execution-ID": "execution-1", "X-Tpf-Idempotency-Key": self.key()}
        first = self.worker.post("ledger.add", ADD, headers)
        again = self.worker.post("ledger.add", ADD, metadata(self.key()))
        self.assertEqual(first.body, again.body)
        self.assertEqual(self.worker.effects(self.key()), 1)

    def test_without_metadata_equal_bodies_are_the_same_work(self):
        first = self.worker.post("conformance", {"op": "run", "tag": self.key()})
        again = self.worker.post("conformance", {"op": "run", "tag": self.key()})
        other = self.worker.post("conformance", {"tag": self.key(), "op": "run"})
        self.assertEqual([first.json(), again.json(), other.json()], [{"runs": 1}, {"runs": 1}, {"runs": 2}])

    def test_many_concurrent_duplicates_take_effect_once_and_all_get_the_same_result(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(self.worker.post, "ledger.add", ADD, metadata(self.key())) for _ in range(64)]
            responses = {(call.result().status, call.result().body) for call in calls}
        self.assertEqual(len(responses), 1)
        self.assertEqual(self.worker.effects(self.key()), 1)


class InProgress(WorkerTest):
    def begin(self, key: str, **more):
        """Starts work that waits for its gate, and returns once the work is claimed."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        call = pool.submit(self.worker.post, "gate.add", {**ADD, "gate": key}, metadata(key, **more))
        probe = {**metadata(key), "x-abide-probe": "1"}
        until(lambda: self.worker.post("gate.add", {}, probe).status == 409, "the claim")
        return call

    def open(self, gate: str):
        self.assertEqual(self.worker.post("gate.open", {"gate": gate}).status, 200)

    def test_a_duplicate_of_work_in_progress_is_rejected_as_in_progress_and_later_gets_the_result(self):
        call = self.begin(self.key())
        busy = self.worker.post("gate.add", ADD, metadata(self.key()))
        self.assertEqual((busy.status, busy.code(), busy.reason()), (409, "ABORTED", "IN_PROGRESS"))
        self.open(self.key())
        first = call.result()
        again = self.worker.post("gate.add", ADD, metadata(self.key()))
        self.assertEqual((first.status, first.body), (again.status, again.body))
        self.assertEqual((first.status, self.worker.effects(self.key())), (200, 1))

    def test_work_in_progress_is_reported_as_such_even_if_the_duplicates_deadline_has_passed(self):
        call = self.begin(self.key())
        busy = self.worker.post("gate.add", ADD, metadata(self.key(), deadline_epoch_ms=1))
        self.assertEqual(busy.reason(), "IN_PROGRESS")
        self.open(self.key())
        self.assertEqual(call.result().status, 200)

    def test_a_waiting_handler_holds_no_lock(self):
        call = self.begin(self.key())
        self.assertEqual(self.worker.post("ledger.add", ADD, metadata(self.key(" other"))).status, 200)
        with contextlib.closing(sqlite3.connect(self.worker.db, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # fails immediately if the worker held the write lock
            connection.execute("ROLLBACK")
        self.open(self.key())
        self.assertEqual(call.result().status, 200)

    def test_a_handler_that_exceeds_its_deadline_releases_its_claim(self):
        call = self.begin(self.key(), deadline_epoch_ms=int(time.time() * 1000) + 500)
        late = call.result()
        self.assertEqual((late.status, late.reason()), (504, "HANDLER_TIMEOUT"))
        self.open(self.key())
        again = self.worker.post("gate.add", {**ADD, "gate": self.key()}, metadata(self.key()))
        self.assertEqual((again.status, self.worker.effects(self.key())), (200, 1))

    def test_a_handler_continues_when_its_caller_disconnects(self):
        connection = self.worker.connect()
        send(connection, "/activities/gate.add", {**ADD, "gate": self.key()}, metadata(self.key()))
        probe = {**metadata(self.key()), "x-abide-probe": "1"}
        until(lambda: self.worker.post("gate.add", {}, probe).status == 409, "the claim")
        connection.close()
        self.open(self.key())
        until(lambda: self.worker.post("gate.add", {}, probe).status == 200, "the record")
        self.assertEqual(self.worker.effects(self.key()), 1)


class Deadlines(WorkerTest):
    def test_work_past_its_deadline_does_not_run_and_leaves_no_record(self):
        late = self.worker.post("ledger.add", ADD, metadata(self.key(), deadline_epoch_ms=1))
        self.assertEqual((late.status, late.code(), late.reason()), (504, "DEADLINE_EXCEEDED", "DEADLINE_EXPIRED"))
        self.assertEqual(self.worker.effects(self.key()), 0)
        self.assertEqual(self.worker.rows("SELECT * FROM work WHERE idempotency_key = ?", self.key()), [])
        self.assertEqual(self.worker.post("ledger.add", ADD, metadata(self.key())).status, 200)

    def test_the_stored_result_is_returned_even_if_the_duplicates_deadline_has_passed(self):
        first = self.worker.post("ledger.add", ADD, metadata(self.key(), deadline_epoch_ms=FAR))
        again = self.worker.post("ledger.add", ADD, metadata(self.key(), deadline_epoch_ms=1))
        self.assertEqual((first.status, first.body), (again.status, again.body))

    def test_the_largest_possible_deadline_is_accepted(self):
        response = self.worker.post("gate.open", {"gate": "x"}, metadata(self.key(), deadline_epoch_ms=2**63 - 1))
        claimed = self.worker.post(
            "conformance", {"op": "run", "tag": self.key()}, metadata(self.key(), deadline_epoch_ms=2**63 - 1)
        )
        self.assertEqual((response.status, claimed.status), (200, 200))


class Failures(WorkerTest):
    TABLE = {
        "CANCELLED": (499, "permanent"), "UNKNOWN": (500, "retryable"), "INVALID_ARGUMENT": (400, "permanent"),
        "DEADLINE_EXCEEDED": (504, "retryable"), "NOT_FOUND": (404, "permanent"), "ALREADY_EXISTS": (409, "permanent"),
        "PERMISSION_DENIED": (403, "permanent"), "RESOURCE_EXHAUSTED": (429, "retryable"),
        "FAILED_PRECONDITION": (412, "permanent"), "ABORTED": (409, "retryable"), "OUT_OF_RANGE": (400, "permanent"),
        "UNIMPLEMENTED": (501, "permanent"), "INTERNAL": (500, "retryable"), "UNAVAILABLE": (503, "retryable"),
        "DATA_LOSS": (500, "permanent"), "UNAUTHENTICATED": (401, "permanent"),
    }  # fmt: skip

    def test_for_every_status_a_retryable_failure_runs_again_and_a_permanent_one_is_stored(self):
        for status, (http, kind) in self.TABLE.items():
            with self.subTest(status):
                key = self.key(status)
                body = {"op": "fail", "tag": key, "status": status, "times": 1}
                first = self.worker.post("conformance", body, metadata(key))
                self.assertEqual((first.status, first.code(), first.reason()), (http, status, "CONFORMANCE"))
                self.assertEqual(first.json()["error"]["details"][1]["requestId"], "execution-1")
                again = self.worker.post("conformance", body, metadata(key, retry_attempt=1))
                if kind == "permanent":
                    self.assertEqual((again.status, again.body), (first.status, first.body))
                else:
                    self.assertEqual((again.status, again.json()), (200, {"runs": 2}))

    def test_the_activity_fail_behaves_the_same(self):
        body = {"tag": self.key(), "status": "UNAVAILABLE", "times": 1}
        responses = [self.worker.post("fail", body, metadata(self.key())) for _ in range(3)]
        self.assertEqual([response.status for response in responses], [503, 200, 200])
        self.assertEqual(responses[2].json(), {"runs": 2})

    def test_a_failing_effect_is_rolled_back_and_its_permanent_failure_is_returned_to_duplicates(self):
        most = {"account": self.key(), "amount": 2**53 - 1}
        self.worker.post("ledger.add", most, metadata(self.key(" most")))
        over = self.worker.post("ledger.add", most, metadata(self.key(" over")))
        self.assertEqual((over.status, over.code(), over.reason()), (400, "OUT_OF_RANGE", "BALANCE_TOO_LARGE"))
        self.assertEqual(self.worker.effects(self.key(" over")), 0)
        self.assertEqual(self.worker.post("ledger.add", most, metadata(self.key(" over"))).body, over.body)
        balance = self.worker.rows("SELECT balance FROM accounts WHERE account = ?", self.key())
        self.assertEqual(balance, [(2**53 - 1,)])

    def test_a_bug_in_a_handler_is_retryable_and_reveals_no_internals(self):
        response = self.worker.post("bug", {}, metadata(self.key()))
        self.assertEqual((response.status, response.code()), (500, "INTERNAL"))
        self.assertNotIn(b"secret", response.body)

    def test_input_that_an_activity_does_not_accept_is_a_permanent_failure(self):
        wrong = [None, [], {}, {"op": "run"}, {"op": "run", "tag": 1}, {"op": "dance", "tag": "t"}, {"op": "echo"}]
        wrong += [{"op": "wait", "tag": "t", "ms": ms} for ms in (-1, 30_001, 1.5, "1", True, None)]
        wrong += [{"op": "fail", "tag": "t", "times": 1, "status": status} for status in ("OK", "ODD", 3, None)]
        for number, body in enumerate(wrong):
            with self.subTest(body):
                response = self.worker.post("conformance", body, metadata(self.key(str(number))))
                self.assertEqual((response.status, response.code()), (400, "INVALID_ARGUMENT"))


class Probes(WorkerTest):
    def probe(self, body=ADD):
        return self.worker.post("ledger.add", body, {**metadata(self.key()), "x-abide-probe": "1"})

    def test_a_probe_never_runs_anything_and_returns_the_stored_result(self):
        unknown = self.probe()
        self.assertEqual((unknown.status, unknown.code(), unknown.reason()), (404, "NOT_FOUND", "WORK_UNKNOWN"))
        self.assertEqual(self.worker.effects(self.key()), 0)
        first = self.worker.post("ledger.add", ADD, metadata(self.key()))
        known = self.probe()
        self.assertEqual((known.status, known.body), (first.status, first.body))
        self.assertEqual(self.worker.effects(self.key()), 1)

    def test_an_unknown_probe_value_runs_nothing(self):
        for values in (["true"], ["0"], ["1", "1"]):
            headers = [*metadata(self.key()).items(), *(("x-abide-probe", value) for value in values)]
            self.assertEqual(self.worker.post("ledger.add", ADD, headers).reason(), "METADATA_MALFORMED")
        self.assertEqual(self.worker.effects(self.key()), 0)
