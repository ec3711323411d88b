# Two stages: packages are built in the first; the second has no compiler, no cache and no root.
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never
WORKDIR /motley
COPY pyproject.toml uv.lock ./
COPY client client
# The client's wheel carries the command and the simulator.
COPY motley_command motley_command
COPY allocation allocation
COPY estimation estimation
COPY simulation simulation
RUN uv sync --frozen --no-default-groups --no-editable --extra nvml
COPY . .
RUN python -m compileall -q -x '/\.venv/' . \
    && MOTLEY_SECRET_KEY=only-to-collect .venv/bin/python manage.py collectstatic --no-input

FROM python:3.11-slim-bookworm
# For `manage.py backup` and `restore`; Debian's version is that of the database in docker-compose.yml.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-client && rm -rf /var/lib/apt/lists/*
# The numbers are fixed: volumes keep them from one image to the next.
RUN groupadd --gid 10001 motley && useradd --uid 10001 --gid motley --create-home motley \
    && install -d -o motley -g motley -m 0711 /var/lib/motley/engine && install -d -o motley -g motley -m 0700 /var/lib/motley/archive
WORKDIR /motley
# Owned by root: what runs as motley, jobs among it, cannot change the program.
COPY --from=build /motley /motley
RUN chmod -R a+rX /motley
USER motley
ENV PATH=/motley/.venv/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
CMD ["python", "manage.py", "web", "--bind", "0.0.0.0:8000"]
