"""Types of the service's JSON responses, all under this name. Fields that a newer service adds are kept."""

from motley_client.responses.account import *
from motley_client.responses.accuracy import *
from motley_client.responses.cluster import *
from motley_client.responses.explanations import *
from motley_client.responses.files import *
from motley_client.responses.forecasts import *
from motley_client.responses.jobs import *
from motley_client.responses.logs import *
from motley_client.responses.recipes import *
from motley_client.responses.recurring_jobs import *
from motley_client.responses.scheduling import *
from motley_client.responses.site import *
from motley_client.responses.sweeps import *
from motley_client.responses.teams import *
from motley_client.responses.timeline import *
from motley_client.responses.usage import *
