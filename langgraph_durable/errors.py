"""Every error this package raises on purpose.

The class says whose fault it is and so what to do next; the message names the thread, the
checkpoint, the channel, the cause and the next step; the driver's own error is chained.

    DurableError
     +-- ConfigurationError    (ValueError)  the call is wrong: mend the argument it names
     |    +-- StepNotFound     (LookupError) a timeline has no such step: tl shows those there are
     +-- SerializationError    (TypeError)   a value cannot be stored exactly: change the value
     +-- UnsafeTypeError       (TypeError)   stored data names a type that is not allowed: allow it
     +-- SchemaVersionError                  no way from the stored state's version: add the step
     +-- EnvironmentChanged                  the program is not the one that stored the thread
     +-- ConcurrentUpdate                    another run moved the thread on: load it and try again
     |    +-- ThreadDeleted                  the thread was deleted meanwhile: let the run end
     |    +-- CheckpointRemoved              what it goes on from was pruned: go on from another
     +-- CorruptionError                     stored bytes are not what was written: restore a backup
     |    +-- ArtifactMissing                an offloaded value is not in its artifact store
     |    +-- ArtifactCorrupt                an offloaded value is not what was uploaded
     |    +-- DamagedArchive                 a file of threads is cut off or altered: get it anew
     +-- CopyMismatch                        a copy does not read back as the original: see where
     +-- StorageError                        the store did not take or give the data
          +-- StorageBusy                    locked for longer than `busy_timeout`: try again
          |    +-- ThreadBusy                others wrote to one thread all the time: try again
          +-- StorageFull                    no room: free some, then run the thread again
          +-- StorageReadOnly                opened or mounted read-only
          +-- StorageUnreachable             the server does not answer: try again when it does
          |    +-- ArtifactsUnreachable      the artifact store does not answer
          +-- NotAStore                      the file is not a database
               +-- StorageTooNew             a newer version of the package wrote it: upgrade

Whatever the class, nothing was written: a call either takes effect whole or not at all. Where a
server went silent, which of the two cannot be known; the message says so.
"""

from __future__ import annotations


class DurableError(Exception):
    """The root: catch it to catch everything this package raises on purpose."""


class ConfigurationError(DurableError, ValueError):
    """An argument is wrong; nothing was read or written."""


class StepNotFound(ConfigurationError, LookupError):
    """A timeline has no step with this number, id or time."""


class SerializationError(DurableError, TypeError):
    """A value cannot be stored so that it comes back equal and of the same type."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class UnsafeTypeError(DurableError, TypeError):
    """Stored data names a type that this saver may not rebuild."""


class SchemaVersionError(DurableError):
    """A checkpoint's state has another version, and cannot be brought to this program's.

    `stored` and `wanted` are the versions, `step` the version that the failing step leads to.
    """

    def __init__(
        self,
        thread_id: str,
        checkpoint_id: str,
        stored: int,
        wanted: int,
        step: int,
        cause: str | None = None,
    ) -> None:
        way = "upgrade" if stored <= wanted else "downgrade"
        if cause is not None:
            why = f"the {way} to version {step} failed: {cause}"
        elif way == "upgrade":
            why = (
                f"there is no upgrade to version {step}: register it with "
                f"@schema.upgrade(to={step})"
            )
        else:
            why = (
                f"there is no downgrade to version {step}: run the newer program, or register it "
                f"with @schema.downgrade(to={step})"
            )
        super().__init__(
            f"thread {thread_id!r}, checkpoint {checkpoint_id}: its state has version {stored}, "
            f"this program's has version {wanted}, and {why}. Nothing was changed."
        )
        self.thread_id, self.checkpoint_id = thread_id, checkpoint_id
        self.stored, self.wanted, self.step, self.cause = stored, wanted, step, cause

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        numbers = self.stored, self.wanted, self.step
        return type(self), (self.thread_id, self.checkpoint_id, *numbers, self.cause)


class EnvironmentChanged(DurableError):
    """A thread was stored by a program with other versions, and `on_environment_change="error"`."""


class ConcurrentUpdate(DurableError):
    """Another run has moved the thread on since this one loaded it."""

    def __init__(self, thread_id: str, expected: str | None, actual: str | None) -> None:
        if actual is None:
            what = (
                "which is not there any more: the thread has expired, or was removed. Nothing was "
                "written. Invoke the thread again to begin anew."
            )
        else:
            what = (
                f"but another run has moved the thread to {actual}. Nothing was written. Invoke "
                "the thread again to continue from its newest state, or pass "
                'on_conflict="allow" to let both runs write.'
            )
        super().__init__(
            f"thread {thread_id!r}: this run continues checkpoint {expected or '(none)'}, {what}"
        )
        self.thread_id, self.expected, self.actual = thread_id, expected, actual

    def __reduce__(self) -> tuple[type, tuple[str, str | None, str | None]]:
        return type(self), (self.thread_id, self.expected, self.actual)


class ThreadDeleted(ConcurrentUpdate):
    """The thread was deleted after this run had loaded it; what the run still writes is refused."""

    def __init__(self, thread_id: str, expected: str | None, actual: str | None = None) -> None:
        Exception.__init__(
            self,
            f"thread {thread_id!r}: it was deleted, with checkpoint {expected or '(none)'} that "
            "this run continues. Nothing was written. A new run under the same id starts afresh.",
        )
        self.thread_id, self.expected, self.actual = thread_id, expected, actual


class CheckpointRemoved(ConcurrentUpdate):
    """The checkpoint that a run had returned to was removed, and its `DeltaChannel`s need it."""

    def __init__(self, thread_id: str, expected: str | None, actual: str | None) -> None:
        Exception.__init__(
            self,
            f"thread {thread_id!r}: checkpoint {expected or '(none)'} was removed after it had "
            "been loaded, and what goes on from it needs it for its DeltaChannels. Nothing was "
            "written. Go on from a checkpoint that is there.",
        )
        self.thread_id, self.expected, self.actual = thread_id, expected, actual


class CorruptionError(DurableError):
    """Stored bytes are missing or are not the bytes that were written."""


class ArtifactMissing(CorruptionError):
    """An offloaded value or an `Artifact` is not in the store that should have it."""


class ArtifactCorrupt(CorruptionError):
    """An offloaded value or an `Artifact` is there, and is not what was uploaded."""


class DamagedArchive(CorruptionError):
    """A file of exported threads is cut off or altered, or is none at all."""


class CopyMismatch(DurableError):
    """What was copied to another saver does not read back as it was in the first one."""


class StorageError(DurableError):
    """The store did not take or give the data."""


class StorageBusy(StorageError):
    """The store stayed locked by another process for longer than the time allowed."""


class ThreadBusy(StorageBusy):
    """Others wrote to one thread all the while that something was to be done with all of it."""


class StorageFull(StorageError):
    """The store has no room left; the write was rolled back whole."""


class StorageReadOnly(StorageError):
    """The store can be read but not written."""


class StorageUnreachable(StorageError):
    """The server cannot be reached, or went silent: a write may or may not have taken effect."""


class ArtifactsUnreachable(StorageUnreachable):
    """The artifact store cannot be reached; nothing that needs it was written."""


class NotAStore(StorageError):
    """What was opened is not a store this version can read."""


class StorageTooNew(NotAStore):
    """A newer version of this package wrote the store; nothing was changed."""
