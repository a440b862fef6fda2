# A simulated vLLM replica, which needs no GPU: for trying CART, and for compose.yml.
#
#   docker build -f deploy/docker/replica.Dockerfile -t cart-replica .        # from the repository's root
ARG GO_IMAGE=golang:1.26-alpine
FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go -C e2e build -trimpath -ldflags=-s -o /replica ./cmd/replica

FROM scratch
COPY --from=build /replica /replica
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["/replica", "-addr", "0.0.0.0:8000"]
CMD ["-prefill-rate", "8000", "-decode-rate", "80"]
