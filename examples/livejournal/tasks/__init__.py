"""What the site's workers do, by the names of the jobs."""

from examples.livejournal.tasks.base import Handler, Task, TaskValue
from examples.livejournal.tasks.crons import CRONS
from examples.livejournal.tasks.dirty import dirty
from examples.livejournal.tasks.mail import bday, mail
from examples.livejournal.tasks.nodes import restart_web_nodes
from examples.livejournal.tasks.pictures import captcha, resize, thumbgen
from examples.livejournal.tasks.weblogs import rss, weblogscom

__all__ = ["HANDLERS", "Handler", "Task", "TaskValue"]

HANDLERS: dict[str, Handler] = {
    "mail": mail,
    "resize": resize,
    "thumbgen": thumbgen,
    **CRONS,
    "dirty": dirty,
    "weblogscom": weblogscom,
    "rss": rss,
    "captcha": captcha,
    "bday": bday,
    "restart_web_nodes": restart_web_nodes,
}
