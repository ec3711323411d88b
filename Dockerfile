# Two stages: packages are built in the first; the second has no compiler, no cache and no root.
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /motley
COPY pyproject.toml uv.lock ./
COPY client client
RUN uv sync --frozen --no-default-groups --no-editable
COPY . .
RUN MOTLEY_VAR=/motley/var MOTLEY_SECRET_KEY=only-to-collect .venv/bin/python manage.py collectstatic --noinput

FROM python:3.11-slim-bookworm
RUN useradd --system --create-home motley && install -d -o motley /var/lib/motley/engine
WORKDIR /motley
COPY --from=build --chown=motley:motley /motley /motley
USER motley
ENV PATH=/motley/.venv/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
CMD ["gunicorn", "config.wsgi", "--bind", "0.0.0.0:8000", "--workers", "2", "--threads", "16"]
