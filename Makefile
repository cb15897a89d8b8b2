# Each target runs one of the tools in tools/. PG_CONFIG picks the PostgreSQL; it is read when a
# target runs, because `make setup` may install it first.

PG_CONFIG ?= pg_config
SKIPS ?= allowed
export PG_CONFIG SKIPS DESTDIR ARCH VERSIONS

.PHONY: build all check setup setup-build setup-test install demo test bench chaos lint package test-package dist test-dist test-arm64 images test-image test-matrix release-check clean help
.NOTPARALLEL:

build:
	@tools/build

# What PGXN's client runs.
all: build

help:
	@echo 'make           build the extension (nothing is installed)'
	@echo 'make check     test what needs no PostgreSQL, in a minute; installs nothing'
	@echo 'make setup     install what building and testing need, and only what is missing'
	@echo 'make setup-build   the same, for building alone'
	@echo 'make install   copy the built extension into PostgreSQL'
	@echo 'make demo      set up, build, install, and show the extension on a throwaway server; KEEP=1 keeps the server'
	@echo 'make test      set up, and run every test; those of clients that lack a JDK, Node or Ruby are skipped; BUSY=1 beside other work'
	@echo 'make bench     set up, and measure the extension against what PostgreSQL offers; FIGURES="calls wal" picks, RUNS=3 shortens, PUBLISH=1 puts all into docs'
	@echo 'make chaos     let everything happen to a fleet while sessions draw; MINUTES=480 for a night, SEED=... for the same events, REGISTRY=postgres or etcd'
	@echo 'make lint      set up, and check form and documentation'
	@echo 'make package   build the packages, below target/packages; VERSIONS="15 16 17 18 19" ARCH="amd64 arm64" builds some in clean root file systems, below target/dist, as root'
	@echo 'make test-package   install, use, update and remove these packages in a clean Debian, as root'
	@echo 'make dist      make what a release publishes, below target/dist, as root: packages, archives, sums, and what they contain'
	@echo 'make test-dist   test what "make dist" has made, as root'
	@echo 'make test-arm64   build the package for arm64, and test it and the core emulated, as root; SEEDS=10000 for more histories'
	@echo 'make images    build the container images from the packages of "make dist", as root; PUSH=registry.example/owner pushes them'
	@echo 'make test-image   build the container images on a stand-in for the official one, and draw ids, as root; PACKAGES=target/dist takes packages of "make dist"'
	@echo 'make test-matrix   run the tests on PostgreSQL 13, 14 and 16 to 19, each in a Debian of its own, as root; VERSIONS=18 TESTS="crash mark" picks'
	@echo 'make release-check   all that a release needs, in some hours, and a page with what ran; after an interruption, it goes on'
	@echo 'make clean     remove what was built'
	@echo
	@echo 'What installs packages stops before an upgrade, and while a PostgreSQL cluster runs; CONFIRM=1 continues.'
	@echo 'PG_CONFIG=/path/to/pg_config picks the PostgreSQL; the default is the one on the PATH.'

check:
	@tools/check

setup:
	@tools/setup

# Installs nothing for tests alone.
setup-build:
	@tools/setup build

# Installs no tools of other languages: the tests of their clients are skipped.
setup-test:
	@tools/setup test

install:
	@tools/install

demo: setup-build build install
	@KEEP='$(KEEP)' cargo run --quiet -p cluster --bin demo

test: setup-test
	@tools/test $(if $(BUSY),--busy)

bench: setup-build
	@tools/bench $(if $(PUBLISH),--publish) $(if $(RUNS),--runs $(RUNS)) $(FIGURES)

chaos: setup-test
	@tools/chaos "$(MINUTES)" "$(SEED)" "$(REGISTRY)"

lint: setup-build
	@tools/lint

package: setup-build
	@$(if $(VERSIONS)$(ARCH),tools/dist $(or $(VERSIONS),$$($(PG_CONFIG) --version | grep -o "[0-9]*" | head -n 1)),tools/package)

test-package: setup-test
	@tools/test-package

dist: setup-test
	@tools/dist

test-dist: setup-test
	@tools/test-dist

test-arm64: setup-test
	@tools/test-arm64 $(VERSIONS)

# These need buildah, which "make setup" installs.
images: setup-test
	@tools/images $(VERSIONS)

test-image: setup-test
	@tools/test-image $(VERSIONS)

test-matrix: setup-test
	@tools/test-matrix $(VERSIONS) $(TESTS)

release-check: setup
	@tools/release-check

clean:
	cargo clean
