# The binary of a release on a base image without a shell; the healthcheck is a command of the binary.
FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The build has no .git folder: docker build --build-arg TESSELLA_REVISION=$(git rev-parse HEAD)
ARG TESSELLA_REVISION= SOURCE_DATE_EPOCH=
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cp "$(packaging/build-binary | tail -n 1)" /tessella
# Folders of the server's user, so that volumes mounted there have the same owner.
RUN mkdir -p /folders/data /folders/cache

FROM gcr.io/distroless/cc-debian13:nonroot
COPY --from=build /tessella /usr/bin/tessella
COPY --from=build --chown=65532:65532 /folders /
USER 65532:65532
EXPOSE 9090
VOLUME ["/data", "/cache"]
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/usr/bin/tessella", "healthcheck"]
ENTRYPOINT ["/usr/bin/tessella"]
CMD ["--web.listen-address=0.0.0.0:9090", "--storage.url=/data"]
