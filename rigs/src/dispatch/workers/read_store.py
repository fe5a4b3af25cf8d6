"""Prints the content of a worker's database, one JSON object per line. The worker must have ended."""

import json
import sqlite3
import sys

PAIR = "execution_id, activity, idempotency_key"
EFFECTS = f"""
SELECT e.execution_id, e.idempotency_key, e.attempt, e.body, w.status
FROM effects e LEFT JOIN work w USING ({PAIR})
"""
# Finished work that must have an effect and has none.
HOLLOW = f"""
SELECT w.execution_id, w.idempotency_key FROM work w LEFT JOIN effects e USING ({PAIR})
WHERE w.activity = 'ledger.add' AND w.status = 200 AND e.attempt IS NULL
"""

with sqlite3.connect(sys.argv[1]) as database:
    for execution, key, attempt, body, status in database.execute(EFFECTS):
        effect = {"execution": execution, "key": key, "attempt": attempt, "tag": json.loads(body)["account"]}
        print(json.dumps({**effect, "recorded": status == 200}))
    for execution, key in database.execute(HOLLOW):
        print(json.dumps({"execution": execution, "hollow": key}))
    for tag, runs in database.execute("SELECT tag, runs FROM runs"):
        print(json.dumps({"tag": tag, "runs": runs}))
