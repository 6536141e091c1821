#!/usr/bin/env python3
"""Debian's Prometheus scrapes a server of Weft, evaluates the alert rules of the tree, and finds the metrics.

usage: scripts/monitoring.py     needs prometheus and promtool (scripts/deps.sh monitoring) and the debug build of weft
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "contrib/monitoring/prometheus-alerts.yml"
TIMEOUT_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def until(what, check):
    """Waits until `check` returns a value."""
    begin = time.monotonic()
    while time.monotonic() - begin < TIMEOUT_S:
        found = check()
        if found:
            return found
        time.sleep(0.2)
    sys.exit(f"not within {TIMEOUT_S} s: {what}")


def main():
    weft = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/weft"
    if not weft.exists():
        sys.exit(f"{weft} is missing: run `cargo build -p weft-cli`")
    print(run("promtool", "check", "rules", RULES).strip())
    children = []
    with tempfile.TemporaryDirectory() as name:
        at = pathlib.Path(name)
        metrics, prometheus = free_port(), free_port()
        run(weft, "key", "make", at / "key")
        cluster = at / "cluster.toml"
        cluster.write_text(
            f'[cluster]\nname = "monitored"\nkey_file = "{at}/key"\n'
            f'[[server]]\nname = "s0"\naddress = "unix:{at}/socket"\nlog = "{at}/log"\n'
            f'metrics = "tcp:127.0.0.1:{metrics}"\n'
            f'[server.metadata]\npath = "{at}/metadata"\n'
            f'[[server.target]]\nid = 0\nclass = "hdd"\npath = "{at}/target"\n'
        )
        (at / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{RULES}]\n"
            "scrape_configs:\n  - job_name: weft\n"
            f'    static_configs: [{{targets: ["127.0.0.1:{metrics}"]}}]\n'
        )

        def query(path, **parameters):
            address = f"http://127.0.0.1:{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
            try:
                with urllib.request.urlopen(address, timeout=5) as answer:
                    return json.load(answer)["data"]
            except OSError:
                return None

        def values(expression):
            data = query("query", query=expression)
            return [float(row["value"][1]) for row in data["result"]] if data else []

        try:
            serve = [weft, "--cluster", cluster, "serve", "s0", "--format", "--announce"]
            server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            children.append(server)
            if server.stdout.readline().strip() != "ready":
                sys.exit(f"the server does not start: {(at / 'log').read_text()}")
            command = [
                "prometheus", f"--config.file={at}/prometheus.yml", f"--storage.tsdb.path={at}/data",
                f"--web.listen-address=127.0.0.1:{prometheus}",
            ]
            with (at / "prometheus.log").open("w") as log:
                children.append(subprocess.Popen(command, stdout=log, stderr=log))
            until("Prometheus has scraped the server", lambda: values('up{job="weft"} == 1'))
            local = at / "bytes"
            local.write_bytes(b"x" * 100_000)
            run(weft, "--cluster", cluster, "cp", local, "/weft/a")
            operation = 'weft_request_duration_seconds_count{operation="metadata"} > 0'
            until("requests are counted", lambda: values(operation))
            if values("weft_target_up") != [1.0]:
                sys.exit(f"targets: {values('weft_target_up')}")
            names = [name for name in query("label/__name__/values") if name.startswith("weft_")]
            alerts = query("rules")["groups"][0]["rules"]
            broken = [rule for rule in alerts if rule["health"] == "err" or rule["state"] == "firing"]
            if broken or len(names) < 30:
                sys.exit(f"{len(names)} metrics; rules: {broken}")
            print(f"Prometheus found {len(names)} metrics and evaluated {len(alerts)} alert rules")
            # An alert begins when the server is gone.
            server.terminate()
            server.wait(20)
            down = 'ALERTS{alertname="WeftServerDown"}'
            until("the alert about a server that is down", lambda: values(down))
            print("the alert about a server that is down is pending")
        finally:
            for child in reversed(children):
                child.terminate()
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


if __name__ == "__main__":
    main()
