"""What a server is told before it starts, validated before any socket opens.

Frozen structs and presets. Nothing here reads the environment or opens anything; whoever wants settings
from there passes them in.
"""

from aiops.config.server import ServerConfig as ServerConfig
from aiops.config.spec import AGGREGATION as AGGREGATION
from aiops.config.spec import CODEC as CODEC
from aiops.config.spec import COMPENSATION as COMPENSATION
from aiops.config.spec import OPTIMIZER as OPTIMIZER
from aiops.config.spec import SYNC as SYNC
from aiops.config.spec import WEIGHTS as WEIGHTS
from aiops.config.spec import WORK as WORK
from aiops.config.spec import BootstrapName as BootstrapName
from aiops.config.spec import DriftName as DriftName
from aiops.config.spec import FoldName as FoldName
from aiops.config.spec import ServerSpec as ServerSpec
from aiops.config.spec import parse_codec as parse_codec
from aiops.policy.combination import check_drift_merge as check_drift_merge
from aiops.policy.preset import PRESETS as PRESETS
from aiops.policy.preset import preset as preset
from aiops.policy.table import MergeName as MergeName
