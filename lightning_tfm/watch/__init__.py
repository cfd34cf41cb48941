"""Where runs and studies are: read from the files of a results folder, by everyone who shows or estimates it."""
