"""Network of a server: its address is found as soon as there is one."""

import pytest

from engines.agent import network
from engines.agent.machine import EmulatedGpus, MachineReports
from engines.agent.network import OwnNetwork
from engines.protocol import NodeReport

URL = "https://motley.example.org"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Addresses and interfaces of a machine that is booting; the first is that of the route to the service."""
    found: dict[str, str] = {}
    monkeypatch.setattr(network, "interfaces", lambda: found)
    monkeypatch.setattr(network, "source_address", lambda _: next(iter(found), ""))
    return found


def test_an_agent_that_starts_before_the_network_finds_its_address_later(host: dict[str, str]) -> None:
    own = OwnNetwork("", URL)
    report = MachineReports("gpu1", EmulatedGpus("k80", 1), lambda: [NodeReport("gpu1")], lambda: own().address)
    assert report(has_work=True).address == ""
    host["10.0.0.7"] = "eth0"
    assert report(has_work=True).address == "10.0.0.7"
    assert own() == ("10.0.0.7", "eth0")


def test_the_interface_of_a_named_address_may_come_later(host: dict[str, str]) -> None:
    own = OwnNetwork("10.1.0.7", URL)
    host["10.0.0.7"] = "eth0"
    assert own() == ("10.1.0.7", "")
    host["10.1.0.7"] = "ib0"
    assert own() == ("10.1.0.7", "ib0")
