"""The messages as the protobuf library reads and writes them: with the fields of the original, and with ours added."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from switchgear.protocols.dwork.messages import LogEntry, Query, Task

FIELD = descriptor_pb2.FieldDescriptorProto
ONE, MANY = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED
BYTES, INT32, INT64, MESSAGE = FIELD.TYPE_BYTES, FIELD.TYPE_INT32, FIELD.TYPE_INT64, FIELD.TYPE_MESSAGE

FIELDS = ("name", "n", "location", "reason", "wait_ms", "lease_ms", "retry_us", "cursor", "tags", "resources")

# Names may be any bytes, so they are not declared as text; and what is required is our own business.
MESSAGES: dict[str, list[tuple[str, int, Any, Any]]] = {
    "Dep": [("name", 1, BYTES, ONE), ("location", 2, BYTES, ONE)],
    "LogMsg": [("state", 1, INT32, ONE), ("time", 2, INT64, ONE)],
    "TaskMsg": [
        ("name", 1, BYTES, ONE),
        ("origin", 2, BYTES, ONE),
        ("pred", 4, "Dep", MANY),
        ("succ", 5, "Dep", MANY),
        ("log", 6, "LogMsg", MANY),
        ("error", 100, BYTES, ONE),
        ("id", 101, INT64, ONE),
        ("state", 102, INT32, ONE),
        ("after", 103, INT64, MANY),
        ("trace", 104, BYTES, ONE),
    ],
    "QueryMsg": [
        ("type", 1, INT32, ONE),
        ("task", 2, "TaskMsg", MANY),
        ("name", 3, BYTES, ONE),
        ("n", 4, INT32, ONE),
        ("location", 6, BYTES, ONE),
        ("reason", 100, BYTES, ONE),
        ("wait_ms", 101, INT32, ONE),
        ("lease_ms", 102, INT32, ONE),
        ("retry_us", 103, INT64, ONE),
        ("cursor", 104, INT64, ONE),
        ("tags", 105, BYTES, ONE),
        ("resources", 106, BYTES, ONE),
    ],
}


def message_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="dwork_oracle.proto", package="oracle", syntax="proto2")
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, label in fields:
            field = message.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type = MESSAGE
                field.type_name = f".oracle.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oracle.{name}")) for name in MESSAGES}


CLASSES = message_classes()
QueryMsg = CLASSES["QueryMsg"]


def written(query: Query) -> bytes:
    """The query as the library writes it."""
    message = QueryMsg(type=query.type)
    for task in query.tasks:
        part = message.task.add(name=task.name, origin=task.origin, after=task.after)
        for name in task.predecessors:
            part.pred.add(name=name)
        for name in task.successors:
            part.succ.add(name=name)
        for state, time_us in task.log:
            part.log.add(state=state, time=time_us)
        copy_present(task, part, "error", "id", "state")
        if task.trace:
            part.trace = task.trace
    copy_present(query, message, *FIELDS)
    data: bytes = message.SerializeToString()
    return data


def copy_present(source: object, target: Any, *fields: str) -> None:
    for field in fields:
        value = getattr(source, field)
        if value is not None:
            setattr(target, field, value)


def understood(data: bytes) -> Query | None:
    """What the library understands; None if it does not, or something required is missing."""
    message = QueryMsg()
    try:
        message.ParseFromString(data)
    except Exception:
        return None
    if not message.HasField("type") or not all(is_whole(task) for task in message.task):
        return None
    query = Query(message.type)
    query.tasks = [task_of(task) for task in message.task] or ()
    read_present(message, query, *FIELDS)
    return query


def is_whole(task: Any) -> bool:
    return (
        task.HasField("name")
        and task.HasField("origin")
        and all(dep.HasField("name") for dep in (*task.pred, *task.succ))
        and all(entry.HasField("state") and entry.HasField("time") for entry in task.log)
    )


def task_of(message: Any) -> Task:
    task = Task(message.name, message.origin)
    task.predecessors = [dep.name for dep in message.pred]
    task.successors = [dep.name for dep in message.succ]
    task.log = [LogEntry(entry.state, entry.time) for entry in message.log]
    task.after = list(message.after)
    task.trace = message.trace
    read_present(message, task, "error", "id", "state")
    return task


def read_present(message: Any, target: object, *fields: str) -> None:
    for field in fields:
        if message.HasField(field):
            setattr(target, field, getattr(message, field))
