"""Large values outside of the database: handles, stores, and what is removed when.

handle, show          `Artifact` and how it looks
stores, files, objects   where contents lie: five verbs
media                 what is compressed; verified reading
shelf                 the stores of one saver; uploads before rows
sweeping              removal beside running writers
"""

from langgraph_durable._core.claims import MissingArtifact
from langgraph_durable.artifacts.files import BESIDE, FileArtifacts
from langgraph_durable.artifacts.handle import Artifact
from langgraph_durable.artifacts.objects import ObjectArtifacts
from langgraph_durable.artifacts.shelf import OFFLOAD_ABOVE, Artifacts, Shelf, shelf_for
from langgraph_durable.artifacts.stores import ArtifactStore, MemoryArtifacts, open_store

__all__ = [
    "BESIDE",
    "OFFLOAD_ABOVE",
    "Artifact",
    "ArtifactStore",
    "Artifacts",
    "FileArtifacts",
    "MemoryArtifacts",
    "MissingArtifact",
    "ObjectArtifacts",
    "Shelf",
    "open_store",
    "shelf_for",
]
