"""SQLite: two processes write one database, in every journal mode."""

import os
import sqlite3
import sys

from case import Case, main

MODES = ("delete", "truncate", "persist", "memory", "wal", "off")
ROWS = 25


def connect(place, mode):
    database = sqlite3.connect(f"{place}/data.db", timeout=60)
    found = database.execute(f"pragma journal_mode = {mode}").fetchone()[0]
    assert found == mode, f"the journal mode is {found}, not {mode}"
    return database


def insert(place, mode, who):
    database = connect(place, mode)
    for number in range(ROWS):
        with database:
            # The lock is taken before the read, as for every read that decides about a write.
            database.execute("begin immediate")
            database.execute("insert into rows values (?, ?, ?)", (who, number, b"x" * (number * 37 % 3000)))
            database.execute("update total set rows = rows + 1")
    database.close()


def write(mode):
    def run(place):
        database = connect(place, mode)
        with database:
            database.execute("create table rows (who integer, number integer, data blob)")
            database.execute("create index by_number on rows (number, who)")
            database.execute("create table total (rows integer)")
            database.execute("insert into total values (0)")
        database.close()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                insert(place, mode, 1)
                code = 0
            except BaseException as error:
                print(f"second process: {error!r}", file=sys.stderr, flush=True)
            os._exit(code)
        insert(place, mode, 0)
        assert os.waitpid(child, 0)[1] == 0, "the second process failed"
        # A transaction that is taken back needs the journal.
        if mode != "off":
            database = connect(place, mode)
            database.execute("delete from rows")
            database.rollback()
            database.close()

    return run


def read(place):
    database = sqlite3.connect(f"{place}/data.db")
    return [
        database.execute("pragma integrity_check").fetchall(),
        database.execute("select rows from total").fetchall(),
        database.execute("select who, number, length(data) from rows order by who, number").fetchall(),
    ]


if __name__ == "__main__":
    main("sqlite3", {mode: Case(write(mode), read) for mode in MODES})
