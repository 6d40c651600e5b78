"""The whole example: set the stage, create the jobs, let them be done, and see what the log says."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

from examples.livejournal.application import Job, create_jobs, follow_all, kill_worker_halfway, look_up_the_rest
from examples.livejournal.checks import Evidence, findings
from examples.livejournal.day import Scale, orders_of_a_day
from examples.livejournal.outside.smtp import SmtpSink
from examples.livejournal.outside.web import Web
from examples.livejournal.processes import Crew, JobServer, WebNodes
from examples.livejournal.report import show_findings, show_log
from examples.livejournal.screen import Screens
from examples.livejournal.site import Site
from examples.livejournal.world import World, joblog_url
from switchgear.client.draft import AsyncDraftClient
from switchgear.joblog import JobLog

__all__ = ["play"]

# Far more than it takes anywhere; without an end, a defect would be a program that hangs.
PLAY_SECONDS = 90.0

EDITORIAL = ("mail", "rss", "weblogscom", "bday")
UPKEEP = ("restart_web_nodes", "pay_updateaccounts", "genstats", "dirty")
PICTURES = ("resize", "thumbgen", "captcha")


async def play(place: Path, scale: Scale, screen: Screens) -> bool:
    """Everything, in this folder; returns whether all was as it should be."""
    now = datetime.now()
    async with AsyncExitStack() as resources, asyncio.timeout(PLAY_SECONDS):
        sink = await resources.enter_async_context(SmtpSink(place / "mail"))
        web = resources.enter_context(Web())
        server = await resources.enter_async_context(JobServer(place))
        world = World(place, server.url, sink.port, web.url)
        world.save()
        site = resources.enter_context(Site.create(place / "site.db", now.date()))
        nodes = await resources.enter_async_context(WebNodes(place, site, "web1", "web2"))
        crew = await resources.enter_async_context(Crew(place))
        with screen:
            jobs = await _do_a_day(world, site, scale, now, crew, screen)
            await server.finish()
            log = resources.enter_context(JobLog.open(joblog_url(place), create=False))
            look_up_the_rest(log, jobs, screen)
        show_log(log, screen)
        evidence = Evidence(place, jobs, log, site, sink.letters, web.pings, nodes.starts)
        return show_findings(findings(evidence), screen)


async def _do_a_day(world: World, site: Site, scale: Scale, now: datetime, crew: Crew, screen: Screens) -> list[Job]:
    """Create all jobs before there is a worker, so that duplicates surely find the first waiting."""
    async with AsyncDraftClient(world.server_url) as client:
        screen.say(f"job server at {world.server_url}, everything else in {world.place}")
        jobs = await create_jobs(client, orders_of_a_day(world, site, scale, now), screen)
        async with asyncio.TaskGroup() as group:
            group.create_task(follow_all(client, jobs, screen))
            await crew.start_worker(*EDITORIAL)
            await crew.start_worker(*UPKEEP)
            resize = next(job for job in jobs if job.order.name == "resize")
            await kill_worker_halfway(client, resize, crew, screen)
            await crew.start_worker(*PICTURES)
    return jobs
