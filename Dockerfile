# The server alone, on a base without a shell; it asks itself whether it is ready.
FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The folder .git is not in the image: docker build --build-arg TESSELLA_REVISION=$(git rev-parse HEAD)
ARG TESSELLA_REVISION= SOURCE_DATE_EPOCH=
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked && cp target/release/tessella /tessella
# What these hold is owned by whom the server runs as, volumes that are put there included.
RUN mkdir -p /folders/data /folders/cache

FROM gcr.io/distroless/cc-debian13:nonroot
COPY --from=build /tessella /usr/bin/tessella
COPY --from=build --chown=65532:65532 /folders /
USER 65532:65532
EXPOSE 9090
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/usr/bin/tessella", "healthcheck"]
ENTRYPOINT ["/usr/bin/tessella"]
CMD ["--web.listen-address=0.0.0.0:9090", "--storage.url=/data"]
