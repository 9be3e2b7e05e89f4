"""Verifies webhooks: reads a JSON list of {"how", "secret", "headers", "body"} and
answers with a list of true and false. "official" is the official library of Standard
Webhooks, to which PYTHONPATH leads; "specification" is the words of its text."""
import base64
import hashlib
import hmac
import json
import sys
import time


def specification(secret, headers, body):
    key = base64.b64decode(secret[len("whsec_"):])
    ident, stamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(stamp)) > 300:
        return False
    want = base64.b64encode(hmac.new(key, f"{ident}.{stamp}.{body}".encode(), hashlib.sha256).digest()).decode()
    pairs = [one.split(",", 1) for one in headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(want, got) for version, got in pairs)


def official(secret, headers, body):
    from standardwebhooks import Webhook, WebhookVerificationError

    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


checks = {"official": official, "specification": specification}
json.dump([checks[m["how"]](m["secret"], m["headers"], m["body"]) for m in json.load(sys.stdin)], sys.stdout)
