"""`GearmanSessionFactory`: makes the sessions of Gearman listeners, where the 2005 draft is spoken too."""

from __future__ import annotations

from switchgear.config import Config, ListenUrl
from switchgear.protocols.gearman.admin import first_line_refusal, on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.gearman_draft.codec import MAGIC as DRAFT_MAGIC
from switchgear.protocols.gearman_draft.session import DraftSession, DraftSetup
from switchgear.protocols.protocol_names import DRAFT, GEARMAN
from switchgear.protocols.session_factory import (
    ProtocolByPrefix,
    ProtocolDetector,
    ServerEnvironment,
    TcpSessionFactory,
)
from switchgear.verbs.access import AccessRules
from switchgear.version import VERSION

__all__ = ["GearmanSessionFactory"]


class GearmanSessionFactory(TcpSessionFactory):
    """Gearman and the 2005 draft; all Gearman listeners of a server share one list of connections."""

    def __init__(self, server: ServerEnvironment) -> None:
        super().__init__(server)
        config = server.config
        self.gearman = GearmanSetup(
            handle_prefix=server.handle_prefix,
            version=f"switchgear-{VERSION}",
            on_messages=handle_messages,
            on_line=on_line,
            exceptions=config.gearman.exceptions,
            sleep_ends_time_limits=config.gearman.sleep_ends_time_limits,
            access=AccessRules(shutdown=config.gearman.shutdown),
        )
        self.draft = DraftSetup(handle_prefix=server.handle_prefix, sessions=self.gearman.sessions)
        self.use_config(config)

    def sessions_at(self, url: ListenUrl) -> ProtocolDetector:
        return ProtocolDetector(
            default=lambda context, transport: GearmanSession(context, transport, self.gearman),
            others=(
                ProtocolByPrefix(DRAFT_MAGIC, lambda context, transport: DraftSession(context, transport, self.draft)),
            ),
            name="Gearman",
            own=frozenset({GEARMAN, DRAFT}),
            refuse_line=first_line_refusal,
        )

    def use_config(self, config: Config) -> None:
        limits = config.limits
        self.gearman.log_level = config.log.level.upper()
        self.gearman.line_bytes = limits.text_line_bytes
        self.gearman.packet_bytes = self.draft.packet_bytes = limits.packet_bytes
        self.gearman.name_bytes = self.draft.name_bytes = limits.name_bytes
