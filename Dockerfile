# One image for every worker: pinned, checked by hash, no root. compose.yaml runs it.
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY requirements/build.txt requirements/build.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY . .
RUN python -m hatchling build -t wheel -d /wheel

FROM python:3.11-slim
COPY requirements/runtime.txt /tmp/runtime.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/runtime.txt
COPY --from=wheel /wheel /tmp/wheel
RUN pip install --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && useradd --create-home fluvial \
    && install --directory --owner=fluvial --group=fluvial /data
USER fluvial
ENV FLUVIAL_DATA=/data PYTHONUNBUFFERED=1
VOLUME /data
ENTRYPOINT ["python", "-m", "fluvial.streams.worker"]
