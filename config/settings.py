"""All settings, from the environment; the defaults are those of the embedded mode (SQLite, no broker)."""

import logging
import os
import tomllib
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import django_stubs_ext
from environs import Env, validate

from config.logs import logging_config, wants_json
from config.setting_values import is_issuer, read_or_create, text_of_file

django_stubs_ext.monkeypatch()  # Django's own generic classes, such as ModelAdmin, become subscriptable
os.umask(0o077)  # what the service writes, keys and database first, is readable by no other account of this machine

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR: Path = env.path("MOTLEY_VAR", BASE_DIR / "var")

DEBUG = env.bool("MOTLEY_DEBUG", False)
SECRET_KEY = env.str("MOTLEY_SECRET_KEY", "") or read_or_create(VAR_DIR / "secret_key")
ALLOWED_HOSTS = env.list("MOTLEY_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
PUBLIC_URL = env.str("MOTLEY_URL", "http://localhost:8000")

INSTALLED_APPS = [
    "web.pages",
    "operations",
    "insight_app",
    "scheduler_app",
    "accounting_app",
    "connections_app",
    "jobs_app",
    "cluster_app",
    "audit_app",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "django_filters",
    "import_export",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_structlog",
    "csp",
    "axes",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
]

MIDDLEWARE = [
    "config.middleware.Correlation",
    "django.middleware.security.SecurityMiddleware",
    "config.middleware.permissions_policy",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.middleware.limit_by_address",
    "web.pages.time_zones.in_the_readers_zone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "config.middleware.no_nul_in_addresses",
    "config.middleware.DatabaseBusy",
    "config.middleware.LoginsEnded",
    "config.query_parameters.RefuseUnknownParameters",
    "config.middleware.forms_only",
]

MOTLEY_DEMO: bool = env.bool("MOTLEY_DEMO", default=False)
MOTLEY_LAST_PAGE_VIEW: Path = VAR_DIR / "last_page_view"
if MOTLEY_DEMO:
    MIDDLEWARE.append("config.middleware.note_page_views")

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "web.pages.site.wheel_address",
                "web.pages.site.texts_of_site",
                "config.openid_connect.login_choices",
            ],
        },
    },
]

# -- database ---------------------------------------------------------------------------------------------------

DATABASES = {"default": env.dj_db_url("MOTLEY_DATABASE", f"sqlite:///{VAR_DIR / 'motley.sqlite3'}")}
DATABASES["default"]["CONN_MAX_AGE"] = 60
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # after a restart of the database the next request finds it again
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # IMMEDIATE takes the write lock at BEGIN, where the busy timeout can wait for it; a deferred transaction that
    # turns into a writer half-way fails at once instead. FULL: what was committed lasts through a power cut; an
    # attempt that was launched and then forgotten would leave its number, and its files, to another job's.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    }

# -- people and sessions ----------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"

# Login by OpenID Connect, beside passwords (docs/login.md); django-allauth does what the protocol needs.
MOTLEY_OIDC_ISSUER = env.str("MOTLEY_OIDC_ISSUER", "", validate=is_issuer)
"""Address of the identity provider, as its discovery document names it; empty: passwords only."""
MOTLEY_OIDC_CLIENT_ID = env.str("MOTLEY_OIDC_CLIENT_ID", "")
MOTLEY_OIDC_SECRET = env.str("MOTLEY_OIDC_SECRET", "") or text_of_file(env.str("MOTLEY_OIDC_SECRET_FILE", ""))
"""The client's secret, or the file that has it."""
MOTLEY_OIDC_LABEL = env.str("MOTLEY_OIDC_LABEL", "Log in with single sign-on")
"""Text of the button on the login page."""
MOTLEY_OIDC_ACCOUNTS = env.str("MOTLEY_OIDC_ACCOUNTS", "invited", validate=validate.OneOf(["invited", "all"]))
"""Who gets in: those whose verified mail address an account has already, or all whom the provider identifies."""
MOTLEY_OIDC_GROUPS_CLAIM = env.str("MOTLEY_OIDC_GROUPS_CLAIM", "groups")
"""Claim that lists the groups of a person."""
MOTLEY_OIDC_TEAMS: dict[str, str] = env.dict("MOTLEY_OIDC_TEAMS", {})
"""Group → team, as group=team,group=team; empty: a group is the team of the same name."""
MOTLEY_OIDC_ADMIN_GROUP = env.str("MOTLEY_OIDC_ADMIN_GROUP", "")
"""Group whose members are administrators; empty: none."""
SOCIALACCOUNT_ADAPTER = "config.openid_connect.Accounts"
SOCIALACCOUNT_LOGIN_ON_GET = True  # a form may only go to ourselves, also by a redirect: content security policy
SOCIALACCOUNT_STORE_TOKENS = False

# Who guesses passwords waits; others, from other addresses, do not wait with them.
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_CALLABLE = "config.lockout.locked_out"
AXES_HANDLER = "config.lockout.Failures"
MOTLEY_LOGIN_FAILURES = env.int("MOTLEY_LOGIN_FAILURES", 50, validate=validate.Range(min=5))
"""Wrong passwords for one name from all addresses, after which the name is locked out everywhere."""
AXES_CLIENT_IP_CALLABLE = "web.rest.throttling.address_of"
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True  # the audit list has it

# Behind TLS (the full stack) cookies are secure and HSTS is on; the embedded mode speaks plain HTTP on this machine.
TLS = env.bool("MOTLEY_TLS", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = TLS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS = 31_536_000 if TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = TLS
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|healthz/scheduler|metrics)$"]  # asked from beside the service
SECURE_REFERRER_POLICY = "same-origin"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TLS else None
CSRF_TRUSTED_ORIGINS: list[str] = env.list("MOTLEY_TRUSTED_ORIGINS", [])
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

# -- language, time, static files -------------------------------------------------------------------------------

LANGUAGE_CODE = "en-gb"
FORMAT_MODULE_PATH = ["config.formats"]
TIME_ZONE = "UTC"  # REST writes Z; web.pages.time_zones chooses the zone of a page
USE_TZ = True
DATA_UPLOAD_MAX_NUMBER_FILES = 2000  # of a folder that New job uploads
STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# -- mail ---------------------------------------------------------------------------------------------------------

MOTLEY_EMAIL_URL = env.str("MOTLEY_EMAIL_URL", "")
"""The mail server, as smtp+tls://user:password@mail.example.org:587; empty: no mail is sent."""
globals().update(env.dj_email_url("MOTLEY_EMAIL_URL", "dummymail://") if MOTLEY_EMAIL_URL else {})
DEFAULT_FROM_EMAIL = env.str("MOTLEY_EMAIL_FROM", "motley@localhost")
EMAIL_TIMEOUT = 10

# -- rate limits --------------------------------------------------------------------------------------------------

_RATE = validate.Regexp(r"\A[1-9][0-9]*/[1-9]?[0-9]*[smhd]\Z", error="Write a count and a time, as 100000/m.")
MOTLEY_REST_RATE = env.str("MOTLEY_REST_RATE", "100000/m", validate=_RATE)
"""Requests over REST of one user."""
MOTLEY_ANONYMOUS_RATE = env.str("MOTLEY_ANONYMOUS_RATE", "6000/m", validate=_RATE)
"""Requests of one address without an account."""
MOTLEY_LOGIN_RATE = env.str("MOTLEY_LOGIN_RATE", "60/m", validate=_RATE)
"""Passwords tried from one address, for any account: each costs a good part of a second to check."""
MOTLEY_ADDRESS_HEADER = env.str("MOTLEY_ADDRESS_HEADER", "")
"""Where a proxy that is trusted writes the caller's address, as X-Real-IP; empty: the address of the connection."""
MOTLEY_PROXIES = list(map(ip_network, env.list("MOTLEY_PROXIES", [])))
"""Addresses and networks of proxies that reach the service over TCP; those over a socket in the file system are
trusted."""
RATELIMIT_IP_META_KEY = "web.rest.throttling.address_of"

# Each process counts for itself, unless it is given a Redis to count in together with the others.
CACHE_URL = env.str("MOTLEY_CACHE_URL", "")
CACHES: dict[str, dict[str, object]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if CACHE_URL:
    CACHES["default"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": CACHE_URL,
        "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},
    }

# -- REST -------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "jobs_app.authentication.BearerToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["jobs_app.permissions.InScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["web.rest.parsers.Json"],
    "DEFAULT_FILTER_BACKENDS": ["web.rest.query.StrictFilters"],
    "DEFAULT_PAGINATION_CLASS": "web.rest.pagination.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "config.schema.Operation",
    "DEFAULT_THROTTLE_CLASSES": ["web.rest.throttling.ByUser"],
    "EXCEPTION_HANDLER": "config.problems.answer",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is answered 405: /api/docs/ says more than it could
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Motley REST",  # generators call the package after it: motley_client is our own
    "DESCRIPTION": "Schedules deep-learning jobs on clusters of mixed GPUs.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.schema.describe_problems",
    ],
    "ENUM_NAME_OVERRIDES": {
        "LabRunState": "insight_app.models.LabRun.State",
        "JobState": "jobs_app.models.Job.State",
        "AttemptState": "jobs_app.models.Attempt.State",
        "NodeState": "cluster_app.models.Node.State",
        "WindowKind": "scheduler_app.models.TimeWindow.Kind",
        "OutcomeEnum": "jobs_app.models.Attempt.Outcome",
        "DueTimeOutcome": "jobs_app.models.RecurringRun.Outcome",
        "ParameterType": "jobs_app.recipes.declaration.TYPE_CHOICES",
        "HalvingType": "scheduler_app.sweeps.admission.HALVING_TYPES",
        "Exploration": "scheduler_app.sweeps.admission.EXPLORATIONS",
        "SweepState": "jobs_app.models.Sweep.State",
        "TrialState": "jobs_app.models.SweepTrial.State",
        "SweepMethod": "jobs_app.models.Sweep.Method",
        "SweepGoal": "jobs_app.models.Sweep.Goal",
        "BudgetKind": "jobs_app.models.Budget.Kind",
        "BudgetPeriod": "jobs_app.models.Budget.Period",
        "RoundResult": "scheduler_app.models.Round.Result",
        "RateSource": "jobs_app.models.Attempt.RateSource",
        "AttemptCpuMemory": "jobs_app.models.Attempt.CpuMemory",
        "EnergySource": "jobs_app.measurement.energy.EnergySource",
        "CostUnit": "insight_app.explain.cost_and_time.CostUnit",
        "EventEnum": "insight_app.models.KeptForecast.Event",
        "NotificationEvent": "jobs_app.models.NotificationTarget.Event",
        "NotificationKind": "jobs_app.models.NotificationTarget.Kind",
        "NotificationState": "jobs_app.models.Notification.State",
        "ChosenEvent": "jobs_app.models.NotificationTarget.CHOSEN",
        "PolicyCpuMemory": "scheduler_app.models.PolicySetting.CpuMemory",
    },
}

# -- Celery (full stack only; the embedded mode has no broker) --------------------------------------------------

MOTLEY_HAS_BROKER = "MOTLEY_REDIS" in os.environ
CELERY_BROKER_URL = env.str("MOTLEY_REDIS", "redis://localhost:6379/0")
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 600,  # then what no worker has acknowledged is given out again
    "socket_connect_timeout": 5,
    "socket_timeout": 30,  # a broker that went away without a word must not be waited for until TCP gives up
    "socket_keepalive": True,
    "retry_on_timeout": True,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker that gave up would be a scheduler that stands still
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY = False  # beat sends the next trigger a second later
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A turn needs no broker to end well, and one that comes a second time does nothing: none is cut short.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TASK_DEFAULT_QUEUE = "engines"
CELERY_BEAT_SCHEDULE = {  # a queue for each loop of the scheduler, so that no cancel waits for a solver
    loop: {"task": f"operations.tasks.run_{turn}_turn", "schedule": 1.0, "options": {"queue": loop, "expires": 5}}
    for loop, turn in (("engines", "engine"), ("rounds", "round"))
}

# -- Motley -----------------------------------------------------------------------------------------------------

MOTLEY_ENGINE_ROOT: Path = env.path("MOTLEY_ENGINE_ROOT", VAR_DIR / "engine")
MOTLEY_CODE_ROOT: Path | None = env.path("MOTLEY_CODE_ROOT", None)
"""Archives of code; None: `code` in the engine's root. Web and scheduler share it."""
MOTLEY_AGENT_ROOT: Path | None = env.path("MOTLEY_AGENT_ROOT", None)
"""Logs and checkpoints that machines which joined have sent; None: `agents` in the engine's root. Web and scheduler
share it."""
MOTLEY_AGENT_LEASE_S = env.int("MOTLEY_AGENT_LEASE_S", 240, validate=validate.Range(min=5, max=270))
"""Time after which such a machine has stopped its jobs if it is not heard: less than that after which it is lost."""
MOTLEY_GANG_READY_S = env.int("MOTLEY_GANG_READY_S", 300, validate=validate.Range(min=5))
"""Time for which servers that are ready wait for the others of their gang, before it is withdrawn."""
MOTLEY_AGENT_CHECKPOINT_BYTES = env.int("MOTLEY_AGENT_CHECKPOINT_BYTES", 8 << 30, validate=validate.Range(min=1))
"""Largest archive of a job's checkpoints that is taken from such a machine."""
MOTLEY_AGENT_UNPACKED_BYTES = env.int("MOTLEY_AGENT_UNPACKED_BYTES", 32 << 30, validate=validate.Range(min=1))
"""Most bytes that such an archive may unpack to."""
MOTLEY_AGENT_UPLOADS = env.int("MOTLEY_AGENT_UPLOADS", 8, validate=validate.Range(min=1, max=1000))
"""Archives of checkpoints that are taken at a time, one from each machine: each holds a thread of the web server."""
MOTLEY_ARCHIVE_ROOT: Path = env.path("MOTLEY_ARCHIVE_ROOT", VAR_DIR / "archive")
"""Jobs that left the database, as compressed JSON lines. Web and scheduler share it."""
_IS_ACCOUNT = validate.Regexp(
    r"\A((\{team\}|[a-z_])(\{team\}|[a-z0-9_-]){0,20})?\Z",
    error='The name of an account has lower-case letters, digits, "-" and "_"; "{team}" stands for the team.',
)
MOTLEY_JOB_USER = env.str("MOTLEY_JOB_USER", "", validate=_IS_ACCOUNT)
"""The unprivileged account that jobs run as when the service is root, one for each team if it contains "{team}"; empty:
jobs run as the service does."""
MOTLEY_CREATE_ACCOUNTS = env.bool("MOTLEY_CREATE_ACCOUNTS", False)
"""Whether the service, as root, creates accounts of jobs that this machine lacks."""
MOTLEY_JOB_PATH = env.str("MOTLEY_JOB_PATH", "")
"""Put in front of a job's PATH: where its python with NumPy and motley_client is."""
MOTLEY_SECRETS_KEYS: list[str] = env.list("MOTLEY_SECRETS_KEYS", [])
"""Keys of secrets: the first encrypts, all decrypt; empty: a key is derived from SECRET_KEY."""
MOTLEY_MAIL_URL = env.str("MOTLEY_MAIL_URL", "")
"""Mail server for notifications, as Apprise writes it: mailtos://user:password@smtp.example.org?from=…; empty: none."""
MOTLEY_MAIL_DOMAINS: list[str] = env.list("MOTLEY_MAIL_DOMAINS", [])
"""Domains to whose addresses notifications are mailed; empty: to any."""
MOTLEY_FAILED_SHARE = env.float("MOTLEY_FAILED_SHARE", 0.5, validate=validate.Range(min=0, max=1))
"""Part of a team's jobs that ended within a day and failed, from which on the team is notified."""
MOTLEY_RECIPES_PER_TEAM = env.int("MOTLEY_RECIPES_PER_TEAM", 200, validate=validate.Range(min=0))
"""Most recipes of one team."""
MOTLEY_RECURRING_JOBS_PER_TEAM = env.int("MOTLEY_RECURRING_JOBS_PER_TEAM", 100, validate=validate.Range(min=0))
"""Most recurring jobs of one team."""
MOTLEY_RECURRING_INTERVAL = env.timedelta(
    "MOTLEY_RECURRING_INTERVAL", timedelta(minutes=1), validate=validate.Range(min=timedelta(minutes=1))
)
"""Shortest time between two due times of a recurring job."""
MOTLEY_WEBHOOK_NETWORKS = list(map(ip_network, env.list("MOTLEY_WEBHOOK_NETWORKS", [])))
"""Networks that are not public and to which webhooks may go all the same."""
MOTLEY_LIMIT_MEMORY = env.bool("MOTLEY_LIMIT_MEMORY", True)
"""Whether a job that uses more memory than it asked for by `memory_per_gpu` is ended."""
MOTLEY_LIMIT_CPUS = env.str("MOTLEY_LIMIT_CPUS", "share", validate=validate.OneOf(["share", "quota", "none"]))
"""Where cgroups can be made: CPU time in proportion to what jobs asked for, or no more than that, or without limits."""
MOTLEY_MEASURE_RATES = env.bool("MOTLEY_MEASURE_RATES", True)
"""Whether a job may start on another GPU type than its policy chose, one that would idle, to measure its rate there."""
MOTLEY_JOB_PROCESSES = env.int("MOTLEY_JOB_PROCESSES", 16384, validate=validate.Range(min=0))
"""Most processes and threads of a job on one machine, or of its account where no cgroup can be made; 0: no limit."""
MOTLEY_CGROUP = env.str("MOTLEY_CGROUP", "auto", validate=validate.Regexp(r"\A(auto|none|/.+)\Z"))
"""Folder of a subtree of cgroup v2 that is the service's; auto: the one that systemd has delegated; none: none."""
MOTLEY_CONTAINERS = env.str(
    "MOTLEY_CONTAINERS", "auto", validate=validate.OneOf(["auto", "podman", "apptainer", "none"])
)
"""The runtime of containers on this machine; auto: the first that works."""
MOTLEY_IMAGE_REGISTRIES: list[str] = env.list("MOTLEY_IMAGE_REGISTRIES", [])
"""Registries from which images are pulled; of others, only images that a node has already are used."""
MOTLEY_IMAGE_FOLDERS: list[str] = env.list("MOTLEY_IMAGE_FOLDERS", [])
"""Folders below which archives of images may lie."""
MOTLEY_LOG_LIMIT_BYTES = env.int("MOTLEY_LOG_LIMIT_BYTES", 64 * 1024 * 1024)
MOTLEY_SOLVES = env.int("MOTLEY_SOLVES", 2, validate=validate.Range(min=1))
"""Most what-if analyses and replays of rounds that one process solves at the same time."""
MOTLEY_FORECASTS = env.bool("MOTLEY_FORECASTS", True)
MOTLEY_CHECKPOINTS_BY_AGE = env.bool("MOTLEY_CHECKPOINTS_BY_AGE", False)
"""Whether a process forecasts after rounds when jobs start and end."""
MOTLEY_LAB_MEMORY_MIB = env.int("MOTLEY_LAB_MEMORY_MIB", None, validate=validate.Range(min=512))
"""Most memory of each process of a run of the policy lab; None: by the machine's memory."""
MOTLEY_LOG_STREAMS = env.int("MOTLEY_LOG_STREAMS", 1000, validate=validate.Range(min=1))
MOTLEY_USER_LOG_STREAMS = env.int("MOTLEY_USER_LOG_STREAMS", 50, validate=validate.Range(min=1))
"""Open event streams of logs, of all and of one user."""
MOTLEY_LOG_POLLS = env.int("MOTLEY_LOG_POLLS", 20, validate=validate.Range(min=1))
"""Requests per second to which one process spreads the followers of logs."""
_A_SECOND = validate.Range(min=timedelta(seconds=1))
MOTLEY_STATEMENT_TIMEOUT = env.timedelta("MOTLEY_STATEMENT_TIMEOUT", timedelta(seconds=30), validate=_A_SECOND)
"""PostgreSQL cancels a statement of a web process after this time."""
_A_MINUTE = validate.Range(min=timedelta(minutes=1))
MOTLEY_SESSIONS = env.int("MOTLEY_SESSIONS", 200, validate=validate.Range(min=1))
MOTLEY_USER_SESSIONS = env.int("MOTLEY_USER_SESSIONS", 20, validate=validate.Range(min=1))
"""Open interactive sessions, of all and of one user."""
MOTLEY_SESSION_IDLE = env.timedelta("MOTLEY_SESSION_IDLE", timedelta(hours=1), validate=_A_MINUTE)
"""Time without input and output after which a session ends."""
MOTLEY_NODE_RESERVE = env.float("MOTLEY_NODE_RESERVE", 0.05, validate=validate.Range(min=0, max=1))
"""Part of a GPU type's nodes, one at least, that stays awake beyond those in use when others sleep."""
MOTLEY_NODE_SLEEP = env.str("MOTLEY_NODE_SLEEP", "")
MOTLEY_NODE_WAKE = env.str("MOTLEY_NODE_WAKE", "")
"""Commands that put a node to sleep and wake it, with its name for `{node}`; with both, nodes sleep."""
MOTLEY_NODE_POWER_TIMEOUT = env.timedelta("MOTLEY_NODE_POWER_TIMEOUT", timedelta(minutes=2), validate=_A_SECOND)
MOTLEY_GPU_HOOK_BEFORE = env.str("MOTLEY_GPU_HOOK_BEFORE", "")
MOTLEY_GPU_HOOK_AFTER = env.str("MOTLEY_GPU_HOOK_AFTER", "")
"""Commands that are run for each GPU of a job before it starts and after it has ended, with its UUID for `{gpu}`."""
MOTLEY_GPU_HOOK_TIMEOUT = env.timedelta("MOTLEY_GPU_HOOK_TIMEOUT", timedelta(minutes=1), validate=_A_SECOND)
# How long things are kept, as 7d or 12h; `manage.py prune --dry-run` says what would go.
_AN_HOUR = validate.Range(min=timedelta(hours=1))
MOTLEY_KEEP_SNAPSHOTS = env.timedelta("MOTLEY_KEEP_SNAPSHOTS", timedelta(days=7), validate=_AN_HOUR)
"""Of a round's snapshot, with which it can be opened and solved again."""
MOTLEY_KEEP_ROUNDS = env.timedelta("MOTLEY_KEEP_ROUNDS", timedelta(days=90), validate=_AN_HOUR)
MOTLEY_HELP_CONTACT = env.str("MOTLEY_HELP_CONTACT", "", validate=validate.Length(max=200))
"""Whom to ask for help, as gpu-help@example.org or #gpus in Slack: on each page, also that of the login."""
MOTLEY_CURRENCY = env.str("MOTLEY_CURRENCY", "", validate=validate.Length(max=10))
"""Of the prices per hour of GPU types, as reports write it."""
MOTLEY_CO2_G_PER_KWH = env.float("MOTLEY_CO2_G_PER_KWH", 0.0, validate=validate.Range(min=0, max=10_000))
"""Carbon intensity of the site's electricity, by which receipts and reports have CO2; 0: they have none."""

MOTLEY_KEEP_EVENTS = env.timedelta("MOTLEY_KEEP_EVENTS", timedelta(days=365), validate=_AN_HOUR)
"""Of nodes, and of jobs from their end on; comments on jobs stay as long as the job."""
MOTLEY_KEEP_JOBS = env.timedelta("MOTLEY_KEEP_JOBS", timedelta(days=365), validate=_AN_HOUR)
"""In the database, from their end on; then they are in the archive."""
MOTLEY_KEEP_MINUTES = env.timedelta("MOTLEY_KEEP_MINUTES", timedelta(days=90), validate=_AN_HOUR)
"""Of the ledger of teams and GPU types."""
MOTLEY_KEEP_GPU_MINUTES = env.timedelta("MOTLEY_KEEP_GPU_MINUTES", timedelta(days=14), validate=_AN_HOUR)
"""Of the readings of GPUs: a row per GPU and minute."""
MOTLEY_KEEP_IDEMPOTENCY_KEYS = env.timedelta("MOTLEY_KEEP_IDEMPOTENCY_KEYS", timedelta(hours=72), validate=_AN_HOUR)
MOTLEY_KEEP_CODE = env.timedelta("MOTLEY_KEEP_CODE", timedelta(days=30), validate=_AN_HOUR)
"""Of archives of code, from the last upload and the end of the last job with it on."""
MOTLEY_TEAM_FILES_GIB = env.int("MOTLEY_TEAM_FILES_GIB", 0, validate=validate.Range(min=0))
"""Of the files of a team's ended jobs, where the team has no limit of its own; 0: no limit."""
MOTLEY_KEEP_FILES = env.timedelta("MOTLEY_KEEP_FILES", timedelta(days=180), validate=_AN_HOUR)
"""Of jobs, from their end on: logs, working folders and checkpoints."""
MOTLEY_KEEP_FORECASTS = env.timedelta("MOTLEY_KEEP_FORECASTS", timedelta(days=365), validate=_AN_HOUR)
"""Of durations, from the end of the job on, and no more than `MOST_FORECASTS` of `operations.retention`."""
MOTLEY_KEEP_AUDIT = env.timedelta("MOTLEY_KEEP_AUDIT", timedelta(days=730), validate=_AN_HOUR)
MOTLEY_KEEP_NOTIFICATIONS = env.timedelta("MOTLEY_KEEP_NOTIFICATIONS", timedelta(days=30), validate=_AN_HOUR)
MOTLEY_KEEP_TOKENS = env.timedelta("MOTLEY_KEEP_TOKENS", timedelta(days=730), validate=_AN_HOUR)
"""Of API tokens, from their expiry on."""
MOTLEY_METRICS_TOKEN = env.str("MOTLEY_METRICS_TOKEN", "")
"""What Prometheus sends as its bearer token; empty: anybody who reaches /metrics may read it."""
MOTLEY_VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"]["version"]

# -- logs -------------------------------------------------------------------------------------------------------

LOG_AS_JSON = wants_json(env.str("MOTLEY_LOG_FORMAT", "auto", validate=validate.OneOf(["auto", "json", "text"])))
LOGGING = logging_config(as_json=LOG_AS_JSON, level=env.str("MOTLEY_LOG_LEVEL", "INFO"))
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True  # config.middleware has looked at it
DJANGO_STRUCTLOG_USER_ID_FIELD = ""
DJANGO_STRUCTLOG_IP_LOGGING_ENABLED = False
DJANGO_STRUCTLOG_CELERY_ENABLED = MOTLEY_HAS_BROKER
DJANGO_STRUCTLOG_STATUS_START_LOG_LEVEL = DJANGO_STRUCTLOG_CELERY_TASK_START_LOG_LEVEL = logging.DEBUG
DJANGO_STRUCTLOG_CELERY_TASK_SUCCESS_LOG_LEVEL = logging.DEBUG
DJANGO_STRUCTLOG_STATUS_DEFAULT_LOG_LEVEL = logging.INFO if LOG_AS_JSON else logging.DEBUG
DJANGO_STRUCTLOG_STATUS_2XX_LOG_LEVEL = DJANGO_STRUCTLOG_STATUS_4XX_LOG_LEVEL = (
    DJANGO_STRUCTLOG_STATUS_DEFAULT_LOG_LEVEL
)
"""A terminal is for what a person should see; each request is for machines."""
