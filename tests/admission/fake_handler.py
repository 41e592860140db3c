"""Handlers that answer what a test says."""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed


class FakeHandler:
    """Handlers that remember what they were asked, and answer what they are told to."""

    def __init__(self) -> None:
        self.answer: AdmissionResponse = Allowed(decision="none")
        self.fault: Exception | None = None
        self.asked: list[tuple[AdmissionRequest, Deadline]] = []

    def __call__(self, request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        self.asked.append((request, deadline))
        if self.fault:
            raise self.fault
        return self.answer
