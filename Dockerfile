# The command robustok, from this checkout:
#   docker build -t robustok .
#   docker run --rm robustok sample "hello world" -s uniform
# and the playground, at http://127.0.0.1:8765 of the machine that runs it:
#   docker build -t robustok --build-arg EXTRAS=play .
#   docker run --rm -p 127.0.0.1:8765:8765 robustok play --host 0.0.0.0
FROM python:3.13-slim AS build
WORKDIR /robustok
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
ARG EXTRAS=""
# CPU builds of torch, where an extra needs it.
ARG EXTRA_INDEX="https://download.pytorch.org/whl/cpu"
RUN --mount=from=build,source=/wheels,target=/wheels \
    --mount=from=build,source=/robustok/constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --extra-index-url "$EXTRA_INDEX" -c /constraints.txt \
    "$(echo /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"
RUN useradd --create-home robustok
USER robustok
WORKDIR /home/robustok
# On another processor than this one they are compiled again when they are used.
RUN python -c "from robustok.kernel_warmup import warmup; warmup()"
ENTRYPOINT ["robustok"]
CMD ["--help"]
