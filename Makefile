# sluice. Everything built here lands in build/, what is slow to make in the
# user's cache folder.

GO ?= go
TOOL = $(GO) tool -modfile=lab/tools/go.mod
STATIC = CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w"
DEMO_TTY = $(shell [ -t 1 ] && echo --tty)

.PHONY: help
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/' | expand -t 14

.PHONY: build
build: ## static binaries in build/bin
	@mkdir -p build/bin
	@$(STATIC) -o build/bin/ ./cmd/...

.PHONY: tools
tools: ## what demo and lab tests run beside sluice: a kubelet's device manager, an IPAM plugin
	@mkdir -p build/tools
	@$(STATIC) -o build/tools/ ./lab/kubelet ./lab/cnibench github.com/containernetworking/plugins/plugins/ipam/host-local

.PHONY: peers
peers: ## reference CNI plugins that lab/bench-cni measures against
	@mkdir -p build/tools
	@cd lab/peers && $(STATIC) -o ../../build/tools/ tool

.PHONY: demo
demo: build tools ## the main job, end to end, in a virtual machine with a NIC in it
	@lab/run $(DEMO_TTY) --nics twin:vfs=8:numa=1 -- lab/demo/story

.PHONY: test
test: ## every test
	@lab/test

.PHONY: e2e
e2e: image ## sluice on a real Kubernetes, whose node has the lab's NIC
	@lab/e2e/run

.PHONY: test-fast
test-fast: lint ## pure packages, the simulated machine, and namespaces where root
	@$(TOOL) gotestsum --format pkgname -- ./...
	@for module in chart promql; do (cd lab/$$module && $(GO) test -count=1 ./...) || exit; done

.PHONY: lint
lint: ## gofmt, vet, staticcheck, go-errorlint
	@lab/lint

.PHONY: generate
generate: ## deep copies and deploy/crds, of the types in pkg/api
	@$(TOOL) controller-gen paths=./pkg/api/v1alpha1 object crd output:crd:dir=deploy/crds

MANIFESTS = deploy/namespace.yaml deploy/crds/*.yaml deploy/rbac.yaml deploy/admission.yaml deploy/agent.yaml deploy/controller.yaml

.PHONY: manifests
manifests: ## deploy/sluice.yaml, which installs everything, of the files beside it
	@awk 'FNR == 1 && NR != 1 && $$0 != "---" {print "---"} {print}' $(MANIFESTS) > deploy/sluice.yaml

VERSION ?= dev

.PHONY: image
# What is shipped says which commit it is of, whatever Go is set to here.
image: STATIC += -buildvcs=auto
image: build ## the container image, build/sluice-VERSION.oci.tar, and what is in it
	@$(GO) run ./lab/image --version $(VERSION) --out build/sluice-$(VERSION).oci.tar

.PHONY: bench
bench: build tools ## a line for each measurement
	@lab/bench

.PHONY: lab-shell
lab-shell: build tools ## a shell in a virtual machine with the lab's NIC
	@lab/shell

.PHONY: lab-root
lab-root: ## the lab's root file system (cached)
	@lab/root/get

.PHONY: lab-kernel
lab-kernel: ## the lab's own kernel, with conntrack offload (cached)
	@lab/kernel/get offload
