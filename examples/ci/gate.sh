#!/usr/bin/env bash
# The gate as a CI runs it: each check to its end, the reports into a folder (default: reports), not 0 if one failed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")"
reports=${1:-reports}
mkdir -p "$reports"
status=0
for check in capture diff; do
  cudagraph-doctor "$check" --format github --format "json=$reports/$check.json" \
    --format "sarif=$reports/$check.sarif" --format "junit=$reports/$check.xml" || status=$?
done
exit $status
