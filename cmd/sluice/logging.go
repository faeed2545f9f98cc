package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logging is how a command that runs on tells what it does, on standard error.
type logging struct{ format, level string }

func (l *logging) bind(f *pflag.FlagSet) {
	f.StringVar(&l.format, "log-format", "text", "text (key=value) or json, an object a line")
	f.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
}

func (l *logging) to(w io.Writer) (*slog.Logger, error) {
	o := &slog.HandlerOptions{}
	switch l.level {
	case "debug":
		o.Level = slog.LevelDebug
	case "info":
		o.Level = slog.LevelInfo
	case "warn":
		o.Level = slog.LevelWarn
	case "error":
		o.Level = slog.LevelError
	default:
		return nil, status{exitUsage, fmt.Errorf("--log-level %q: want debug, info, warn or error", l.level)}
	}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, status{exitUsage, fmt.Errorf("--log-format %q: want text or json", l.format)}
}
