# The demo on lavapipe, in a container without a GPU:
#     docker build -f .ci/demo.Dockerfile -t dmlgpu . && docker run --rm -v "$PWD:/out" dmlgpu
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git make python3
COPY . /dmlgpu
WORKDIR /dmlgpu
RUN make demo
CMD [".venv/bin/dmlgpu", "demo", "--output", "/out/demo.png"]
