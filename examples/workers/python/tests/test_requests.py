"""The format of requests: metadata, bodies, wires, HTTP."""

import hashlib
import json
import socket

from harness import ENVELOPE, REST, WAIT_S, Response, WorkerTest, metadata, send

RUN = {"account": "requests", "amount": 1}
MIB = 1024 * 1024


class Metadata(WorkerTest):
    def refused(self, headers):
        response = self.worker.post("ledger.add", RUN, headers)
        self.assertEqual((response.status, response.code()), (400, "INVALID_ARGUMENT"))
        self.assertEqual(response.reason(), "METADATA_MALFORMED")
        self.assertEqual(self.worker.effects(self.key()), 0)

    def test_a_duplicate_key_is_refused_whatever_its_values_and_case(self):
        for name, value in metadata(self.key(), retry_attempt=0, correlation_id="c").items():
            for second in (value, "other", ""):
                with self.subTest(name=name, second=second):
                    pairs = [*metadata(self.key(), retry_attempt=0, correlation_id="c").items()]
                    self.refused([*pairs, (name.upper(), second)])

    def test_numbers_that_are_not_decimal_or_out_of_range_are_refused(self):
        for name in ("retry_attempt", "deadline_epoch_ms", "dispatch_ts_epoch_ms"):
            largest = 2**32 - 1 if name == "retry_attempt" else 2**63 - 1
            for value in ("-1", "+1", "0x10", "1e3", "1.0", "1 2", "1_000", "one", str(largest + 1), "9" * 400):
                with self.subTest(name=name, value=value):
                    self.refused(metadata(self.key(), **{name: value}))

    def test_the_largest_numbers_are_accepted(self):
        largest = {"retry_attempt": 2**32 - 1, "deadline_epoch_ms": 2**63 - 1, "dispatch_ts_epoch_ms": 2**63 - 1}
        self.assertEqual(self.worker.post("ledger.add", RUN, metadata(self.key(), **largest)).status, 200)
        recorded = self.worker.rows("SELECT attempt FROM effects WHERE idempotency_key = ?", self.key())
        self.assertEqual(recorded, [(2**32 - 1,)])

    def test_execution_id_and_key_are_required_if_any_key_is_present(self):
        self.refused({"x-tpf-execution-id": "e"})
        self.refused({"x-tpf-idempotency-key": self.key()})
        self.refused({"x-tpf-correlation-id": "c"})
        self.refused({"x-tpf-execution-id": " ", "x-tpf-idempotency-key": self.key()})

    def test_values_that_are_too_long_or_not_printable_ascii_are_refused(self):
        for value in ("x" * 513, "a\tb", "caf\xe9", "\x7f"):
            with self.subTest(value):
                self.refused_or_bad_http({**metadata(self.key()), "x-tpf-parent-item-id": value})
        self.assertEqual(self.worker.post("ledger.add", RUN, metadata("k" * 512)).status, 200)

    def refused_or_bad_http(self, headers):
        """Some of these values are not valid HTTP: also 400, but without the reason."""
        response = self.worker.post("ledger.add", RUN, headers)
        self.assertEqual((response.status, response.code()), (400, "INVALID_ARGUMENT"))
        self.assertEqual(self.worker.effects(self.key()), 0)

    def test_a_blank_value_counts_as_absent(self):
        blank = metadata(self.key(), retry_attempt=" ", deadline_epoch_ms="", parent_item_id="  ")
        self.assertEqual(self.worker.post("ledger.add", RUN, blank).status, 200)
        self.worker.post("echo", [self.key()], {"x-tpf-execution-id": "", "x-tpf-idempotency-key": " "})
        digest = hashlib.sha256(b"echo\0" + json.dumps([self.key()]).encode()).hexdigest()
        record = "SELECT execution_id FROM work WHERE activity = 'echo' AND idempotency_key = ?"
        self.assertEqual(self.worker.rows(record, digest), [("",)])


class Bodies(WorkerTest):
    def test_bad_json_is_refused(self):
        deep = b"[" * 65 + b"]" * 65
        bad = [b"", b"{", b"nul", b"NaN", b"[Infinity]", b"1e999", b'{"a":1}x', b"\xff", b'"\\ud800"', deep, b"[" * MIB]
        for body in bad:
            with self.subTest(body[:20]):
                response = self.worker.post("echo", body, metadata(self.key()))
                self.assertEqual((response.status, response.code()), (400, "INVALID_ARGUMENT"))
                self.assertEqual(response.reason(), "BODY_MALFORMED")

    def test_any_json_value_survives_a_round_trip(self):
        values = [None, True, 0, -1.5, "", "é\u0000\U0001f600", [], {}, {"a": [{"b": None}]}, 2**53 - 1]
        values.append(json.loads("[" * 64 + "]" * 64))
        for number, value in enumerate(values):
            with self.subTest(value):
                response = self.worker.post("echo", value, metadata(self.key(str(number))))
                self.assertEqual((response.status, response.json()), (200, value))
                self.assertEqual(response.content_type, REST)

    def test_one_mebibyte_is_accepted_and_one_byte_more_is_refused(self):
        accepted = self.worker.post("echo", b'"' + b"x" * (MIB - 2) + b'"', metadata(self.key(" accepted")))
        self.assertEqual((accepted.status, len(accepted.body)), (200, MIB))
        for size in (7 * MIB // 2 + 1, 8 * MIB):
            refused = self.worker.post("echo", b'"' + b"x" * (size - 2) + b'"', metadata(self.key(str(size))))
            self.assertEqual((refused.status, refused.code()), (413, "OUT_OF_RANGE"))
            self.assertEqual(refused.reason(), "BODY_TOO_LARGE")

    def test_other_content_types_are_refused(self):
        for content_type in (None, "", "text/plain", "application/x-protobuf", "application/jsonp"):
            with self.subTest(content_type):
                response = self.worker.post("echo", 1, metadata(self.key()), content_type)
                self.assertEqual((response.status, response.code()), (415, "INVALID_ARGUMENT"))
        parameters = "Application/JSON; charset=utf-8"
        self.assertEqual(self.worker.post("echo", 1, metadata(self.key()), parameters).status, 200)

    def test_an_unknown_activity_is_not_found(self):
        for name in ("unknown", "", "echo/", "echo/x", "ledger", "%65cho%2f"):
            response = self.worker.post(name, 1, metadata(self.key()))
            self.assertEqual((response.status, response.code()), (404, "NOT_FOUND"))
        self.assertEqual(self.worker.post("ledger%2Eadd", RUN, metadata(self.key())).status, 200)


class Envelopes(WorkerTest):
    def envelope(self, context, data=None, **changes):
        control = {"pipeline": "p", "step": "ledger.add", "operatorId": "abide", "context": context, "metadata": {}}
        payload = {"kind": "json", "contentType": "application/json", "data": data or RUN}
        return {"protocolVersion": "tpf.envelope.v1", "control": control, "payload": payload, **changes}

    def context(self, **more):
        return {"executionId": "execution-1", "idempotencyKey": self.key(), **more}

    def post(self, body, headers=()):
        return self.worker.post("ledger.add", body, headers, ENVELOPE)

    def test_the_response_is_an_envelope_with_the_output_and_the_same_context(self):
        full = {"correlationId": "c", "retryAttempt": 0, "deadlineEpochMs": 4102444800000, "dispatchTsEpochMs": 5}
        context = self.context(**full, parentItemId=None)
        response = self.post(self.envelope(context))
        self.assertEqual((response.status, response.content_type), (200, ENVELOPE))
        self.assertEqual(response.json()["protocolVersion"], "tpf.envelope.v1")
        self.assertEqual(response.json()["control"]["context"], context)
        self.assertEqual(response.json()["payload"]["kind"], "json")
        self.assertIsInstance(response.json()["payload"]["data"]["balance"], int)

    def test_a_duplicate_gets_the_same_output_in_an_envelope_with_its_own_context(self):
        first = self.post(self.envelope(self.context(retryAttempt=0)))
        again = self.post(self.envelope(self.context(retryAttempt=1)))
        self.assertEqual(first.body.replace(b'"retryAttempt":0', b'"retryAttempt":1'), again.body)
        self.assertEqual(self.worker.effects(self.key()), 1)

    def test_without_metadata_the_text_of_the_input_identifies_the_work(self):
        run = '{"op" : "run", "tag": "%s"}' % self.key()
        forms = [
            '{"protocolVersion":"tpf.envelope.v1","payload":{"kind":"json","data":%s}}',
            ' { "control" : {"pipeline":"\\u007d,\\"payload"}, "payload" :\n{ "data" : %s , "kind":"json" },'
            ' "protocolVersion" : "tpf.envelope.v1" } ',
        ]
        for form in forms:
            response = self.worker.post("conformance", (form % run).encode(), content_type=ENVELOPE)
            self.assertEqual((response.status, response.json()["payload"]["data"]), (200, {"runs": 1}))
        self.assertEqual(self.worker.post("conformance", run.encode()).json(), {"runs": 1})
        other = self.worker.post("conformance", run.replace(" : ", ":").encode())
        self.assertEqual(other.json(), {"runs": 2})

    def test_work_finished_over_one_wire_is_known_over_the_other(self):
        first = self.worker.post("ledger.add", RUN, metadata(self.key()))
        again = self.post(self.envelope(self.context()))
        self.assertEqual(again.json()["payload"]["data"], first.json())
        self.assertEqual(self.worker.effects(self.key()), 1)

    def test_the_context_is_the_metadata_and_is_parsed_as_strictly(self):
        for wrong in ({"retryAttempt": -1}, {"retryAttempt": 1.5}, {"deadlineEpochMs": True}, {"executionId": None}):
            response = self.post(self.envelope(self.context(**wrong)))
            self.assertEqual((response.status, response.reason()), (400, "METADATA_MALFORMED"))
        for wrong in ({"retryAttempt": "1"}, {"executionId": 7}, {"idempotencyKey": ["a"]}):
            response = self.post(self.envelope(self.context(**wrong)))
            self.assertEqual((response.status, response.reason()), (400, "METADATA_MALFORMED"))
        text = json.dumps(self.envelope(self.context()))
        twice = text.replace('"executionId"', '"executionId": "e", "executionId"').encode()
        response = self.worker.post("ledger.add", twice, content_type=ENVELOPE)
        self.assertEqual((response.status, response.reason()), (400, "METADATA_MALFORMED"))
        late = self.post(self.envelope(self.context(deadlineEpochMs=1)))
        self.assertEqual((late.status, late.reason()), (504, "DEADLINE_EXPIRED"))
        self.assertEqual(self.worker.effects(self.key()), 0)

    def test_headers_that_match_the_context_are_accepted_and_others_refused(self):
        other = self.post(self.envelope(self.context()), metadata("another"))
        self.assertEqual((other.status, other.reason()), (400, "METADATA_MALFORMED"))
        same = self.post(self.envelope(self.context(retryAttempt=3)), metadata(self.key(), retry_attempt=3))
        self.assertEqual(same.status, 200)

    def test_a_body_that_is_not_an_envelope_of_this_version_is_refused(self):
        context = self.context()
        reasons = {
            "PROTOCOL_UNSUPPORTED": [{}, [], None, self.envelope(context, protocolVersion="tpf.envelope.v2")],
            "BODY_MALFORMED": [
                self.envelope(context, control=[1]),
                self.envelope(context, payload=[]),
                self.envelope(context, payload={"kind": "bytes", "data": {"bytesBase64": ""}}),
            ],
        }
        for reason, bodies in reasons.items():
            for body in bodies:
                response = self.post(body)
                self.assertEqual((response.status, response.code()), (400, "INVALID_ARGUMENT"))
                self.assertEqual(response.reason(), reason)

    def test_a_payload_of_one_mebibyte_fits_into_an_envelope(self):
        whole = self.envelope(self.context(), "x" * (MIB - 2))
        response = self.worker.post("echo", whole, content_type=ENVELOPE)
        self.assertEqual((response.status, len(response.json()["payload"]["data"])), (200, MIB - 2))

    def test_a_failure_has_the_same_body_as_over_rest(self):
        response = self.post(self.envelope(self.context(), {"account": 5}))
        self.assertEqual((response.status, response.content_type), (400, REST))
        self.assertEqual(response.reason(), "INPUT_INVALID")


class Http(WorkerTest):
    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.worker.port), WAIT_S) as connection:
            connection.sendall(request)
            response = b""
            while piece := connection.recv(65536):
                response += piece
        return response

    def test_one_connection_serves_many_requests(self):
        connection = self.worker.connect()
        self.addCleanup(connection.close)
        for number in range(50):
            send(connection, "/activities/echo", number, metadata(self.key(str(number))))
            self.assertEqual(Response(connection.getresponse()).json(), number)
            if number == 0:
                first_socket = connection.sock
            self.assertIs(connection.sock, first_socket)

    def test_health_is_reported(self):
        connection = self.worker.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/healthz")
        response = Response(connection.getresponse())
        self.assertEqual((response.status, response.json()["status"]), (200, "ok"))

    def test_other_methods_and_paths_are_refused(self):
        for method, path, status in (
            ("GET", "/activities/echo", 405),
            ("PUT", "/activities/echo", 405),
            ("GET", "/", 404),
        ):
            connection = self.worker.connect()
            connection.request(method, path)
            self.assertEqual(Response(connection.getresponse()).status, status)
            connection.close()

    def test_a_request_that_is_not_http_is_refused_and_the_connection_closed(self):
        for request in (
            b"hello\r\n\r\n",
            b"POST /activities/echo HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n",
            b"POST /activities/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            b"POST /activities/echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
            b"POST /activities/echo HTTP/1.1\r\nhost: x\r\nx-tpf-execution-id: a\x00b\r\ncontent-length: 0\r\n\r\n",
        ):
            with self.subTest(request[:60]):
                response = self.raw(request)
                self.assertTrue(response.startswith(b"HTTP/1.1 400 "), response)
                self.assertIn(b'"status":"INVALID_ARGUMENT"', response)

    def test_an_endless_head_is_refused(self):
        response = self.raw(b"GET /healthz HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 100_000)
        self.assertTrue(response.startswith(b"HTTP/1.1 431 "), response)
