# sluice. Everything built here lands in build/.

GO ?= go

.PHONY: build
build: ## static binaries in build/bin
	@mkdir -p build/bin
	@if ls cmd/*/*.go >/dev/null 2>&1; then CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o build/bin/ ./cmd/...; else echo "no ./cmd yet"; fi

.PHONY: lab-root
lab-root: ## the lab's root file system (cached)
	@lab/root/get

.PHONY: lab-kernel
lab-kernel: ## the lab's own kernel, with conntrack offload (cached)
	@lab/kernel/get offload

.PHONY: lab-shell
lab-shell: build ## a shell in a virtual machine with the lab's NIC
	@lab/shell
