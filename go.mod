module sluice.dev/sluice

go 1.26.8
