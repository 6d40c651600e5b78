"""The verb `stream`: recent attempts with their worker, start and end."""

from __future__ import annotations

from typing import Any, Final

from switchgear.json_bytes import plain
from switchgear.model import SECOND_US
from switchgear.net.monitoring.task_stream import RunRecord, TaskStream
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.verbs.live_answers import StreamAnswer

__all__ = ["StreamOperations"]

WATCHED_SECONDS: Final = 30  # how long a request counts as watching
MOST_RUNNING: Final = 200
ROWS_PER_STEP: Final = 250
COLUMNS: Final = ("worker", "function", "job", "start", "end", "outcome")


class StreamOperations:
    """The verb `stream`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self.task_stream = TaskStream(context.engine, context.hub.soon)

    def stream(self, since: float, cursor: int | None, limit: int, seconds: float | None) -> Steps:
        stream = self.task_stream
        stream.watch(WATCHED_SECONDS if seconds is None else seconds)
        end = stream.written
        first = stream.oldest
        dropped = 0
        if cursor is not None:
            dropped = max(0, first - cursor) if cursor >= stream.first else 0
            first = min(max(first, cursor), end)
        if since:
            first = max(first, stream.number_since(int(since * SECOND_US)))
        every = max(1, -(-(end - first) // limit))  # of very many rows every so manieth
        numbers = range(first, end, every)
        dropped += (end - first) - len(numbers)
        records: list[RunRecord] = []
        for start in range(0, len(numbers), ROWS_PER_STEP):
            if start:
                yield False
            records += [
                stream.row(number) for number in numbers[start : start + ROWS_PER_STEP] if number >= stream.oldest
            ]
        return self._answer(records, dropped, end)

    def _answer(self, records: list[RunRecord], dropped: int, end: int) -> StreamAnswer:
        stream = self.task_stream
        functions: dict[bytes, int] = {}
        running = stream.running(MOST_RUNNING)
        rows = [self._row(record, functions) for record in records]
        shown = [self._row(record, functions) for record in running]
        names = stream.worker_names
        workers = {record.worker: names[record.worker] for record in (*records, *running) if record.worker in names}
        answer: StreamAnswer = {
            "at": self._context.engine.now_us / SECOND_US,
            "recording_since": stream.recording_since_us / SECOND_US,
            "sampled": stream.is_sampled,
            "dropped": dropped,
            "next": end,
            "functions": [plain(name) for name in functions],
            "workers": {str(id): {"name": plain(name), "protocol": word} for id, (name, word) in workers.items()},
            "columns": list(COLUMNS),
            "rows": rows,
            "running": shown,
            "running_count": stream.running_count,
        }
        if node := self._context.hub.node_name:
            answer["node"] = node
        return answer

    def _row(self, record: RunRecord, functions: dict[bytes, int]) -> list[Any]:
        return [
            record.worker,
            functions.setdefault(record.function, len(functions)),
            self._context.handle(record.job),
            record.start_us / SECOND_US,
            record.end_us / SECOND_US if record.end_us else None,
            record.outcome,
        ]
