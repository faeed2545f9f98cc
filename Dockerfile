# One image for agent and CNI: two static binaries and nothing else. It builds
# from the output of `make build`, without network.
FROM scratch
COPY build/bin/sluice /sluice
COPY build/bin/sluice-cni /sluice-cni
ENTRYPOINT ["/sluice"]
CMD ["agent", "-f", "/etc/sluice/node.yaml"]
