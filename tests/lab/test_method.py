"""A method's numbers: names in braces, grids, and what is refused."""

import pytest

from aiops.errors import ConfigError
from aiops.lab.method import OBSERVERS, Method, get


def method(**given):
    return Method(**{"label": "f", "algorithm": "fedavg", **given})


WORK = {"work": "fixed:{tau}"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": "fedavgg"}, "fedavgg"),
        ({"lr": -0.5}, "method 'f' has a learning rate of -0.5"),
        ({"lr": float("nan")}, "learning rate of nan"),
        ({"settings": WORK}, r"method 'f': a setting has a name in braces that .*'tau'.*for lr"),
        ({"settings": {"work": "fixed:{}"}}, "name in braces that stands for nothing"),
        ({"settings": {"work": "fixed:{tau"}}, "name in braces that stands for nothing"),
        ({"settings": {"work": "fixed:{lr.x}"}}, "name in braces that stands for nothing"),
        ({"values": {"tau": 5}}, "has numbers for 'tau', but no setting with {tau}"),
        ({"grid": {"tau": (5,)}}, "has numbers for 'tau', but no setting with {tau}"),
        ({"values": {"lr": 0.1}}, "lr among its values"),
        ({"grid": {"lr": ()}}, "empty grid for 'lr'"),
        ({"grid": {"lr": (0.1, 0.0)}}, "learning rate of 0"),
        ({"settings": {"sink": "bulk:0"}}, "method 'f': .*sink"),
        ({"settings": WORK, "values": {"tau": 0}}, "method 'f': fixed's steps is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        method(**given)


def test_names_in_braces_are_filled_in_from_values_then_from_the_grids_first():
    one = method(settings=WORK, grid={"tau": (20, 40)})
    assert one.spec()["work"] == "fixed:20"
    assert method(settings=WORK, grid={"tau": (20, 40)}, values={"tau": 7}).spec()["work"] == (
        "fixed:7"
    )
    assert one.spec()["sync"] == "bulk:0"


def test_the_points_of_a_grid_come_in_order():
    one = method(settings=WORK, grid={"tau": (20, 40), "lr": (0.1, 0.2)})
    points = list(one.points())
    assert [(p.values, p.lr) for p in points] == [
        ({"tau": 20}, 0.1),
        ({"tau": 20}, 0.2),
        ({"tau": 40}, 0.1),
        ({"tau": 40}, 0.2),
    ]
    assert points[3].numbers() == {"tau": 40, "lr": 0.2}
    assert points[3].spec()["work"] == "fixed:40"


def test_a_method_without_a_grid_is_its_only_point():
    assert list(get("nbsync").points()) == [get("nbsync")]


def test_a_point_that_makes_no_sense_is_refused_with_the_methods_name():
    with pytest.raises(ConfigError, match="method 'f': fixed's steps is 0"):
        list(method(settings=WORK, grid={"tau": (20, 0)}).points())


def test_nobody_starts_alone_and_observers_have_room():
    config = method().config(3)
    assert (config.min_workers, config.max_members) == (3, 3 + OBSERVERS)
    # The method's own settings go before those of the lab.
    assert method(settings={"lease_s": 30.0}).config(3, {"lease_s": 50.0}).lease_s == 30.0
