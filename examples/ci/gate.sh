#!/usr/bin/env bash
# The gate as a CI runs it: all checks, one verdict; the reports go into a folder (default: reports).
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")"
reports=${1:-reports}
mkdir -p "$reports"
cudagraph-doctor checkup --format github --format "json=$reports/checkup.json" \
  --format "sarif=$reports/checkup.sarif" --format "junit=$reports/checkup.xml"
