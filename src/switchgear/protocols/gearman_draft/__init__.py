"""The Gearman draft of 2005: docs/protocols/gearman-draft.md."""
